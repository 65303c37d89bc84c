package kubeconfig

import (
	"testing"

	"golang.org/x/sys/unix"
)

func ownerOf(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}
