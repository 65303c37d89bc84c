//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// TestServerFullDisk fills the disk of a server to the last byte. Reads continue, writes are refused with the
// reason, and when there is room again, the same process accepts writes.
func TestServerFullDisk(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "64m")
		d := startServer(t, filepath.Join(dir, "data"), freeAddress(t))
		d.mustRequest(t, http.MethodPost, mapsPath, configMap("before"))

		filler := filepath.Join(dir, "filler")
		smalldisk.Fill(t, filler, 0)
		write := func(name string) (int, string, error) {
			status, out, err := d.request(t.Context(), http.MethodPost, mapsPath, configMap(name))
			return status, string(out), err
		}
		for i := range 20 { // the disk remains full for some seconds
			<-time.After(500 * time.Millisecond)
			status, out, err := write(fmt.Sprintf("refused-%d", i))
			if i == 0 {
				t.Logf("a write to a full disk: %d %s", status, out)
			}
			if status != http.StatusInsufficientStorage && status != http.StatusTooManyRequests {
				t.Fatalf("write %d to a full disk: %d %v %s", i, status, err, out)
			}
			d.mustRequest(t, http.MethodGet, mapsPath+"/before", nil)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "writes with room on the disk", func() error {
			if status, out, err := write("after"); status != http.StatusCreated {
				return fmt.Errorf("%d %w: %s", status, err, out)
			}
			return nil
		})
		select {
		case <-d.ended:
			t.Error("the server has ended")
		default:
		}
		d.stop(t)
		again := startServer(t, d.data, d.address)
		again.mustRequest(t, http.MethodGet, mapsPath+"/before", nil)
		again.mustRequest(t, http.MethodGet, mapsPath+"/after", nil)
		again.stop(t)
	})
}
