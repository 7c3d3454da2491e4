package loggers

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestLevels: levels are inherited, set, taken away, and what is logged follows at once, also by loggers made before.
func TestLevels(t *testing.T) {
	var out bytes.Buffer
	s := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: Everything}), slog.LevelWarn)
	root, storage, network := s.Logger(Root), s.Logger(Storage).With("dir", "a"), s.Logger(Network)
	logged := func() string {
		out.Reset()
		for name, l := range map[string]*slog.Logger{"r": root, "s": storage, "n": network} {
			for _, at := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				l.Log(t.Context(), at, name)
			}
		}
		return fmt.Sprintf("root %d, storage %d, network %d", strings.Count(out.String(), "msg=r"), strings.Count(out.String(), "msg=s logger=storage dir=a"), strings.Count(out.String(), "msg=n logger=network"))
	}
	for _, x := range []struct{ name, to, want string }{
		{"", "", "root 2, storage 2, network 2"},
		{Storage, "DEBUG", "root 2, storage 4, network 2"},
		{Root, "ERROR", "root 1, storage 4, network 1"},
		{Network, "FATAL", "root 1, storage 4, network 0"},
		{Root, "TRACE", "root 4, storage 4, network 0"},
		{Network, "", "root 4, storage 4, network 4"},
		{Root, "INFO", "root 3, storage 4, network 3"},
		{Storage, "", "root 3, storage 3, network 3"},
	} {
		if x.name != "" {
			to := &x.to
			if x.to == "" {
				to = nil
			}
			if err := s.Change(x.name, to); err != nil {
				t.Fatal(err)
			}
		}
		if got := logged(); got != x.want {
			t.Errorf("%s=%s: %s, want %s", x.name, x.to, got, x.want)
		}
	}
	if got := fmt.Sprint(s.Levels()); got != "[{broker INFO} {controller INFO} {coordinator INFO} {lifecycle INFO} {network INFO} {peer INFO} {replication INFO} {root INFO} {storage INFO}]" {
		t.Error(got)
	}
}

func TestRefusedLevels(t *testing.T) {
	s := New(slog.DiscardHandler, slog.LevelInfo)
	for _, x := range []struct {
		name, to string
		is       error
		want     string
	}{
		{"kafka.server.ReplicaManager", "DEBUG", ErrInvalid, "Logger kafka.server.ReplicaManager does not exist!"},
		{"", "DEBUG", ErrInvalid, "Logger  does not exist!"},
		{Storage, "debug", ErrInvalid, "Cannot set the log level of storage to debug as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"},
		{Root, "OFF", ErrInvalid, "Cannot set the log level of root to OFF as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"},
		{Root, "-", ErrRoot, "Removing the log level of the root logger is not allowed"},
		{"x", "-", ErrInvalid, "Logger x does not exist!"},
	} {
		to := &x.to
		if x.to == "-" {
			to = nil
		}
		if err := s.Change(x.name, to); !errors.Is(err, x.is) || err.Error() != x.want {
			t.Errorf("%s=%s: %v", x.name, x.to, err)
		}
	}
}
