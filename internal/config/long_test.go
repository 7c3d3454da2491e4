package config

import (
	"strings"
	"testing"
	"time"
)

// Whatever a file holds, messages about it stay short, and are made at once.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 30<<20)
	for name, line := range map[string]string{
		"key": long + "=1", "value of an unknown key": "no.such.key=" + long, "no value": long, "value": "log.cleaner.threads=" + long,
	} {
		began := time.Now()
		_, warnings, err := Load("server.properties", []byte("node.id=1\nprocess.roles=broker\n"+line+"\n"), nil)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if err == nil && len(warnings) == 0 {
			t.Errorf("%s: no word about it", name)
		}
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		for _, w := range warnings {
			if len(w.String()) > 2000 {
				t.Errorf("%s: a warning of %d bytes", name, len(w.String()))
			}
		}
	}
}
