package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Endings of the four files, and of the producer snapshot that lies beside them.
const (
	ExtLog       = ".log"
	ExtIndex     = ".index"
	ExtTimeIndex = ".timeindex"
	ExtTxnIndex  = ".txnindex"
	ExtSnapshot  = ".snapshot"
)

// Suffixes behind the endings.
const (
	// SuffixDeleted marks files that are about to be deleted.
	SuffixDeleted = ".deleted"
	// SuffixCleaned marks the unfinished output of the cleaner; it is thrown away at start.
	SuffixCleaned = ".cleaned"
	// SuffixSwap marks the finished output of the cleaner, which takes the place of the segments it was made from.
	SuffixSwap = ".swap"
)

// digits of the base offset in a file name.
const digits = 20

// Name is the file name for an offset, an ending and a suffix.
func Name(offset int64, ext, suffix string) string {
	return fmt.Sprintf("%0*d%s%s", digits, offset, ext, suffix)
}

// Path is Name in a directory.
func Path(dir string, offset int64, ext, suffix string) string {
	return filepath.Join(dir, Name(offset, ext, suffix))
}

// ParseName takes a file name apart. It takes the names of this package's files only: an offset in 20 digits, a known
// ending, and "" or a known suffix.
func ParseName(name string) (offset int64, ext, suffix string, ok bool) {
	if len(name) < digits+len(ExtLog) {
		return 0, "", "", false
	}
	rest := name[digits:]
	for _, s := range []string{SuffixDeleted, SuffixCleaned, SuffixSwap} {
		if cut, found := strings.CutSuffix(rest, s); found {
			rest, suffix = cut, s
			break
		}
	}
	switch rest {
	case ExtLog, ExtIndex, ExtTimeIndex, ExtTxnIndex, ExtSnapshot:
	default:
		return 0, "", "", false
	}
	u, err := strconv.ParseUint(name[:digits], 10, 63)
	if err != nil {
		return 0, "", "", false
	}
	return int64(u), rest, suffix, true
}
