package main

import "runtime"

// spareHeap is how much memory is allocated and never touched, so that it is not resident. The garbage collector runs
// whenever the heap has doubled: with a few MB of live data, as most nodes have, that is many times a second under load,
// and costs a third of the CPU time. With this it runs when that much garbage has come together.
const spareHeap = 24 << 20

// keepSpareHeap allocates it; the returned function lets it go.
func keepSpareHeap() (free func()) {
	spare := make([]byte, spareHeap)
	return func() { runtime.KeepAlive(spare) }
}
