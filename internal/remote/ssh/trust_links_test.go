package ssh

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestRemember_RefusesForeignLinks: root adds no line to a file that a link in the
// directory of another user leads to.
func TestRemember_RefusesForeignLinks(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dir := t.TempDir()
	home, passwd := filepath.Join(dir, "home"), filepath.Join(dir, "passwd")
	file := filepath.Join(home, "known_hosts")
	if err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(passwd, []byte("root\n"), 0o600), to.GiveFiles(home),
		os.Symlink(passwd, file)); err != nil {
		t.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	always := func() (bool, error) { return true, nil }
	var foreign *fileowner.ForeignError
	if err := rememberKey(file, "10.0.0.11", key, always); !errors.As(err, &foreign) {
		t.Errorf("error %v, want a *ForeignError", err)
	}
	if b, err := os.ReadFile(passwd); err != nil || string(b) != "root\n" {
		t.Errorf("a file elsewhere has now %q (%v)", b, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := rememberKey(file, "10.0.0.11", key, always); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || bytes.Count(b, []byte("\n")) != 2 {
		t.Errorf("the list has %q (%v), want both lines", b, err)
	}
}
