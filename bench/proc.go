package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// cpuSeconds is user and system time of the processes so far.
func cpuSeconds(pids []int) (float64, error) {
	var ticks int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The second field is the name in parentheses, which may hold anything; utime and stime are fields 14 and 15.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 13 {
			return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
		}
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
			}
			ticks += n
		}
	}
	return float64(ticks) / ticksPerSecond, nil
}

// residentBytes is the resident memory of the processes (VmRSS).
func residentBytes(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, found := strings.Cut(string(text), "VmRSS:")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// cpu is cpuSeconds of a system.
func cpu(t testing.TB, s System) float64 {
	t.Helper()
	c, err := cpuSeconds(s.Pids())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// resident is residentBytes of a system.
func resident(t testing.TB, s System) float64 {
	t.Helper()
	n, err := residentBytes(s.Pids())
	if err != nil {
		t.Fatal(err)
	}
	return float64(n)
}

// peak is the largest resident memory of a system while work runs.
func peak(t testing.TB, s System, work func()) float64 {
	t.Helper()
	stop := make(chan struct{})
	var most int64
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for failed == nil {
			var n int64
			n, failed = residentBytes(s.Pids())
			most = max(most, n)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	work()
	close(stop)
	wg.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	return float64(most)
}

// poll asks again and again, with hardly a pause, until ask returns nil.
func poll(t testing.TB, limit time.Duration, what string, ask func() error) {
	t.Helper()
	pollEvery(t, time.Millisecond, limit, what, ask)
}

// pollEvery is poll for what costs those who are asked something.
func pollEvery(t testing.TB, every, limit time.Duration, what string, ask func() error) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	deadline := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-tick.C
	}
}

// claimMemory touches memory and gives it back. On a virtual machine the first use of a page makes the host find one,
// which costs more than everything a broker does with it: that must not fall to whoever runs first.
func claimMemory() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	const most = 5 << 30
	n := min(most, int(info.Freeram)*int(info.Unit)/4*3)
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	return unix.Munmap(b)
}

// watch tells what share of the machine's CPU time was used by processes that have nothing to do with the measurement.
type watch struct{ all, ours float64 }

func startWatch(t testing.TB) watch {
	t.Helper()
	all, err := machineSeconds()
	if err != nil {
		t.Fatal(err)
	}
	return watch{all, ownSeconds()}
}

// share is that of the time since startWatch.
func (w watch) share(b *Bench) float64 {
	b.Helper()
	now := startWatch(b.T)
	ours := now.ours - w.ours
	if b.System != nil {
		// A process that runs still is not among the children that have been waited for.
		if live, err := cpuSeconds(b.System.Pids()); err == nil {
			ours += live
		}
	}
	if now.all <= w.all {
		return 0
	}
	return max(0, 1-ours/(now.all-w.all))
}

// ownSeconds is the CPU time of this process and of its children that have ended.
func ownSeconds() float64 {
	var sum float64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil { // fails for no value of who that stands here
			sum += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return sum
}

// machineSeconds is the CPU time that the machine has spent on anything: the first line of /proc/stat without idling.
func machineSeconds() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks int64
	for i, f := range strings.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are in user already
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}
