//go:build linux

package helper

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// uplinkRate is the uplink of the manager of which the benchmark measures, in
// bytes a second: 400 Mbit/s.
const uplinkRate = 50_000_000

// BenchmarkContent measures what the manager uploads to hosts that all ask for
// the same content at once, as a multiple of the content ("copies"), the time
// until the last host has all of it, and for comparison the same from the
// manager alone. SSH, helpers, TLS and digests are real; machine and loopback are
// one, and every host's disk is memory. Run it with make bench-content.
func BenchmarkContent(b *testing.B) {
	// A bundle's sizes, one quarter: programs and layers, and what describes
	// them.
	sizes := []int{14 << 20, 7 << 20, 5 << 20, 4 << 20, 3 << 20, 2 << 20, 1 << 20, 500_000, 200_000}
	for range 30 {
		sizes = append(sizes, 2_000)
	}
	for _, n := range []int{2, 10, 50} {
		for _, way := range []string{"host-to-host", "manager-alone"} {
			b.Run(fmt.Sprintf("hosts=%d/%s", n, way), func(b *testing.B) {
				var copies float64
				for b.Loop() {
					b.StopTimer()
					f := newField(b, n, way == "manager-alone", nil)
					f.shelf.rate = uplinkRate
					ops, total := f.shelf.fillWith(sizes...)
					errs := make([]error, n)
					b.StartTimer()
					var wg sync.WaitGroup
					for i, h := range f.hosts {
						wg.Go(func() { errs[i] = f.applyOps(h, ops) })
					}
					wg.Wait()
					b.StopTimer()
					copies = float64(f.content.BytesSent()) / float64(total)
					for i, h := range f.hosts {
						errs[i] = errors.Join(errs[i], f.verifyBlobs(h, ops), h.conn.Close())
					}
					if err := errors.Join(errs...); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				b.ReportMetric(copies, "copies")
			})
		}
	}
}
