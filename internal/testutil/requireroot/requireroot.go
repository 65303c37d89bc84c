// Package requireroot is for tests of what only root can do. It links into no
// program.
package requireroot

import (
	"os"
	"runtime"
	"testing"
)

// Need fails a test that root has to run, on Linux, and says why and what to
// do. It skips nothing: a test that did not run would pass for one that did.
func Need(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Fatalf("%s: run the tests as root, on Linux (sudo -E make unit)", why)
	}
}
