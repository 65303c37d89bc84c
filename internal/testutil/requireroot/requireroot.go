// Package requireroot is for tests of what only root can do. It links into no
// program.
package requireroot

import (
	"os"
	"runtime"
	"testing"
)

// Need fails a test that needs root on Linux if it does not have that, with the reason
// and the remedy. It does not skip the test: a test that did not run would count as
// passed.
func Need(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Fatalf("%s: run the tests as root, on Linux (sudo -E make unit)", why)
	}
}
