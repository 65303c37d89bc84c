package fileowner

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCredential_ReturnsIDsAndGroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		as   *Owner
		want *syscall.Credential
	}{
		{"whoever runs it", nil, nil},
		{"a user without a name", &Owner{UID: 12345, GID: 12346}, &syscall.Credential{Uid: 12345, Gid: 12346}},
	} {
		if d := cmp.Diff(tt.want, tt.as.Credential()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestEnviron_SetsHomeOfOwner(t *testing.T) {
	env := []string{"HOME=/root", "PATH=/bin"}
	for _, tt := range []struct {
		name string
		as   *Owner
		want []string
	}{
		{"whoever runs it", nil, env},
		{"a user with a name", &Owner{UID: 0}, []string{"HOME=/root", "PATH=/bin", "HOME=/root", "USER=root", "LOGNAME=root"}},
		{"a user without", &Owner{UID: 12345}, env},
	} {
		if d := cmp.Diff(tt.want, tt.as.Environ(env)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestProgramUser_IsRootOnlyWhereOnlyRootWrites(t *testing.T) {
	to, dir := testOwner(t), t.TempDir()
	theirs, roots := filepath.Join(dir, "theirs"), filepath.Join(dir, "theirs", "roots")
	if err := errors.Join(os.MkdirAll(roots, 0o755), to.GiveFiles(theirs)); err != nil {
		t.Fatal(err)
	}
	other := &Owner{UID: 54321, GID: 54321}
	for _, tt := range []struct {
		name, dir string
		owner     *Owner
		want      *Owner
	}{
		{"a directory where only root can write", "/etc", other, nil},
		{"the caller's", theirs, to, to},
		{"a user's, in a root shell", theirs, nil, to},
		{"a user's, for another caller", theirs, other, to},
		{"root's in the caller's, as it is made", roots, to, to},
		{"missing", filepath.Join(theirs, "none"), to, to},
	} {
		if d := cmp.Diff(tt.want, tt.owner.ProgramUser(tt.dir)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
