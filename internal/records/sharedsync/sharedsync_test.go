package sharedsync

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSetPace_WritesItemsOfTheWaitToo adds items while a write waits for its turn.
func TestSetPace_WritesItemsOfTheWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []int
		added := 0
		w := New(func() func() error {
			n := added
			added = 0
			return func() error { writes = append(writes, n); return nil }
		}, func(err error) error { return err })
		w.SetPace(func() { <-time.After(time.Second) })
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				<-time.After(time.Duration(i) * Delay)
				if err := w.Add(func() error { added++; return nil }); err != nil {
					t.Error(err)
				}
				if err := w.Sync(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(writes) != 1 || writes[0] != 5 || w.CountDurable() != 5 {
			t.Errorf("writes with %v items, %d items are durable, want one write with 5", writes, w.CountDurable())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
