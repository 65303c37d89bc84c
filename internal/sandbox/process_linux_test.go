package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
)

func TestKeyPair_HalvesMatch(t *testing.T) {
	k, err := newKeyPair("dev")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(k.Private)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != k.Public {
		t.Errorf("the halves differ: private has %s, public is %s", got, k.Public)
	}
}

func TestCopySparse_KeepsHoles(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	f, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	// Data at the start, in the middle and a hole at the end.
	for _, at := range []int64{0, 32 << 20} {
		if _, err := f.WriteAt(bytes.Repeat([]byte{7}, 5000), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := copySparse(to, from); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(from)
	b, errB := os.ReadFile(to)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the copy differs: %v, %v", errA, errB)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("the copy takes %d bytes: its holes are filled", used)
	}
	if err := copySparse(to, from); err == nil {
		t.Error("an existing file was overwritten")
	}
}
