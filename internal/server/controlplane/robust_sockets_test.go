package controlplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRobustEtcd_ListensOnItsClientSocketOnly looks for a socket that other users can open: the
// abstract socket of etcd's peers would let each of them write to the database.
func TestRobustEtcd_ListensOnItsClientSocketOnly(t *testing.T) {
	t.Parallel() // it waits most of its time
	c := startChild(t, filepath.Join(t.TempDir(), "data"), "", serverOptions{})
	want := []string{filepath.Join(c.data, "etcd", "client.sock")}
	if diff := cmp.Diff(want, listeningSockets(t, c.command.Process.Pid)); diff != "" {
		t.Errorf("the server listens on these Unix sockets (-want +got):\n%s", diff)
	}
	c.stop(t)
}

// listeningSockets returns the names of the Unix sockets on which a process listens.
func listeningSockets(t *testing.T, pid int) (names []string) {
	t.Helper()
	open := map[string]bool{}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil { // it may be closed
			open[to] = true
		}
	}
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	const acceptsConnections = "00010000"
	for line := range strings.Lines(string(text)) {
		f := append(strings.Fields(line), "") // a socket without a name
		if len(f) > 7 && f[3] == acceptsConnections && open["socket:["+f[6]+"]"] {
			names = append(names, f[7])
		}
	}
	return names
}
