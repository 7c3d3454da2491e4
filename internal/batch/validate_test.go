package batch

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch/compress"
)

// verdict is what a client would see.
func verdict(err error) (code int16, text string, records []RecordError) {
	var inv *InvalidRecordError
	var cor *CorruptError
	switch {
	case err == nil:
		return 0, "", nil
	case errors.As(err, &inv):
		return inv.Code, inv.Message, inv.RecordErrors
	case errors.As(err, &cor):
		return cor.Code(), cor.Error(), nil
	}
	return kerr.UnknownServerError.Code, err.Error(), nil
}

func produce(records []byte, p *Policy, buf *Buffers) (Checked, error) {
	b, err := Single(records, 9)
	if err != nil {
		return Checked{}, err
	}
	return Validate(b, p, buf)
}

func TestValidate(t *testing.T) {
	var buf Buffers
	for _, c := range produceCases() {
		t.Run(caseName(c), func(t *testing.T) {
			got, err := produce(c.records(nowMs), policyOf(c.topic, nowMs), &buf)
			code, text, records := verdict(err)
			var want int16
			if c.code != nil {
				want = c.code.Code
			}
			var indexes []int32
			for _, r := range records {
				indexes = append(indexes, r.Index)
			}
			if code != want || !strings.Contains(text, c.text) || !slices.Equal(indexes, c.indexes) {
				t.Fatalf("got code %d, %q, record errors %v; want %d, %q, %v", code, text, records, want, c.text, c.indexes)
			}
			if err != nil {
				return
			}
			if !got.Batch.CheckCRC() {
				t.Error("accepted batch has a wrong CRC")
			}
			if got.Count != int(got.Batch.Count()) {
				t.Errorf("count %d, header says %d", got.Count, got.Batch.Count())
			}
		})
	}
}

// What inflates without end is refused as too large, and not like bytes that cannot be read.
func TestTooMuchToInflate(t *testing.T) {
	for err, want := range map[error]*kerr.Error{compress.ErrTooLarge: kerr.MessageTooLarge, io.ErrUnexpectedEOF: kerr.UnknownServerError} {
		var refused *InvalidRecordError
		if !errors.As(errInflate(fmt.Errorf("reading: %w", err)), &refused) || refused.Code != want.Code {
			t.Errorf("%v: code %d, want %v", err, refused.Code, want)
		}
	}
}
