package config

import (
	"errors"
	"testing"
)

// The answers are Apache Kafka 4.3.1's.
func TestValidateClientMetrics(t *testing.T) {
	for _, c := range []struct {
		key, value, message string
		request             bool
	}{
		{"interval.ms", "bbb", "Invalid value bbb for configuration interval.ms: Not a number of type INT", false},
		{"interval.ms", "99", "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)", true},
		{"interval.ms", "3600001", "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)", true},
		{"interval.ms", "100", "", false},
		{"foo", "1", "Unknown client metrics configuration: foo", true},
		{"metrics", "", "", false},
		{"metrics", "*", "", false},
		{"metrics", "a,b", "", false},
		{"match", "", "", false},
		{"match", "x", "Illegal client matching pattern: x", false},
		{"match", "x=y", "Illegal client matching pattern: x=y", false},
		{"match", "client_id", "Illegal client matching pattern: client_id", false},
		{"match", "client_id=", "Illegal client matching pattern: client_id=", false},
		{"match", "client_id=a=b", "Illegal client matching pattern: client_id=a=b", false},
		{"match", "client_id=[", "Illegal client matching pattern: client_id=[", false},
		{"match", "client_id=a.*,client_software_name=b", "", false},
		{"match", " client_id = a ", "", false},
		{"match", "client_id=a,client_id=b", "", false},
	} {
		err := ValidateClientMetrics(map[string]string{c.key: c.value})
		var bad *Invalid
		switch {
		case err == nil && c.message != "":
			t.Errorf("%s=%s is accepted", c.key, c.value)
		case err != nil && (!errors.As(err, &bad) || bad.Message != c.message || bad.Request != c.request):
			t.Errorf("%s=%s: %v, want %q (request %v)", c.key, c.value, err, c.message, c.request)
		}
	}
}

func TestDescribeClientMetrics(t *testing.T) {
	rows := DescribeClientMetrics(map[string]string{"match": " client_id = a "})
	if len(rows) != 3 || rows[0].Name != "interval.ms" || *rows[0].Value != "300000" || rows[0].Source != SourceDefault || len(rows[0].Synonyms) != 0 {
		t.Errorf("%+v", rows)
	}
	if m := rows[1]; m.Name != "match" || *m.Value != "client_id = a" || m.Source != SourceClientMetrics || len(m.Synonyms) != 1 || m.IsDefault {
		t.Errorf("%+v", m)
	}
}
