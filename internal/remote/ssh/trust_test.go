package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func newKey(t testing.TB) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestReadTrust_PrefersTheUsersFile(t *testing.T) {
	a, b, c := newKey(t), newKey(t), newKey(t)
	line := func(word, hosts string, key ssh.PublicKey) string {
		return word + hosts + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + "\n"
	}
	tests := map[string]struct {
		reason      string
		files       []string
		keys        []int // the lines that each list has, over all files
		authorities []int
		revoked     []int
	}{
		"first file":  {"the user's known_hosts is stronger than ours", []string{line("", "h", a), line("", "h", b)}, []int{1}, nil, nil},
		"second file": {"the first one has other hosts only", []string{line("", "x", a), "\n" + line("", "h", b)}, []int{2}, nil, nil},
		"revoked later": {
			"a revocation is appended, as a rule",
			[]string{line("", "h", a) + line("@revoked ", "h", a)},
			[]int{1},
			nil,
			[]int{2},
		},
		"revoked in all": {
			"a revocation counts in every file",
			[]string{line("", "h", a), "\n\n" + line("@revoked ", "*", a)},
			[]int{1},
			nil,
			[]int{3},
		},
		"revoked first": {
			"the second file's keys are used still",
			[]string{line("@revoked ", "*", c), line("", "h", a)},
			[]int{1},
			nil,
			[]int{1},
		},
		"authorities": {
			"a CA counts in every file, too",
			[]string{line("@cert-authority ", "*", c) + line("", "h", a), line("@cert-authority ", "h,x", b)},
			[]int{2},
			[]int{1, 1},
			nil,
		},
		"other marker": {"a marker of the future says nothing", []string{line("@other ", "h", a)}, nil, nil, nil},
		"excluded":     {"a pattern may exclude the host", []string{line("@cert-authority ", "*,!h", a)}, nil, nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "missing")}
			for i, text := range tc.files {
				file := filepath.Join(dir, string(rune('a'+i)))
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			got, err := readTrust(files, "h", os.ReadFile)
			if err != nil {
				t.Fatal(err)
			}
			lines := func(keys []knownKey) (out []int) {
				for _, k := range keys {
					out = append(out, k.line)
				}
				return out
			}
			if d := cmp.Diff([][]int{tc.keys, tc.authorities, tc.revoked},
				[][]int{lines(got.keys), lines(got.authorities), lines(got.revoked)}); d != "" {
				t.Errorf("%s:\n%s", tc.reason, d)
			}
		})
	}
	for _, file := range []string{t.TempDir(), filepath.Join(os.Args[0], "below a file")} {
		if got, err := readTrust([]string{file}, "h", os.ReadFile); err == nil {
			t.Errorf("%s cannot be read and says %+v", file, got)
		}
	}
}

// TestRemember_KeepsOneKey: if many managers see a host for the first time, one saves its key;
// an incomplete line is not joined with another one.
func TestRemember_KeepsOneKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "known_hosts")
	key := newKey(t)
	first := func() (bool, error) {
		known, err := readTrust([]string{file}, "h", os.ReadFile)
		return len(known.keys) == 0, err
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := rememberKey(file, "h", key, first); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	raw, err := os.ReadFile(file)
	if want := knownhosts.Line([]string{"h"}, key) + "\n"; err != nil || string(raw) != want {
		t.Errorf("kept %q, %v, want %q", raw, err, want)
	}
	if err := os.WriteFile(file, []byte("h ssh-ed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rememberKey(file, "h", key, first); err != nil {
		t.Fatal(err)
	}
	if known, err := readTrust([]string{file}, "h", os.ReadFile); err != nil || len(known.keys) != 1 || known.keys[0].line != 2 {
		t.Errorf("after a line that was cut: %v, %v", known.keys, err)
	}
}

// FuzzLookUp: any text is read, and what is found is of the host that was
// asked for.
func FuzzLookUp(f *testing.F) {
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(newKey(f))))
	for _, text := range []string{
		"h " + key, "@revoked * " + key, "@cert-authority *.x,!h " + key, "|1|c2FsdA==|aGFzaA== " + key,
		"[h]:22 " + key, "h", "@", "@revoked", "# h " + key, "\x00", "h\tssh-ed25519 A", "h,\\[ " + key,
	} {
		f.Add([]byte(text), "h")
	}
	f.Fuzz(func(t *testing.T, raw []byte, address string) {
		lines := strings.Count(string(raw), "\n") + 1
		for _, k := range lookUp(raw, "file", address) {
			if k.key == nil || k.line < 1 || k.line > lines {
				t.Errorf("found %+v in %d lines", k, lines)
			}
		}
	})
}
