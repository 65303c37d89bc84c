package spec

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/testutil/golden"
)

const filesCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  bundle: ./none.tar
  ssh:
    privateKeyFile: plain
    passwordFrom: {env: SLIPWAY_TEST_UNSET}
  hosts:
    - {name: a, address: 192.0.2.1, roles: [control-plane], ssh: {privateKeyFile: none}}
    - {name: b, address: 192.0.2.2, roles: [worker], ssh: {privateKeyFile: locked}}
    - {name: c, address: 192.0.2.3, roles: [worker], ssh: {privateKeyFile: locked, passphraseFrom: {file: word}}}
    - {name: d, address: 192.0.2.4, roles: [worker], ssh: {privateKeyFile: plain.pub, passphraseFrom: {file: none}}}
    - {name: e, address: 192.0.2.5, roles: [worker], ssh: {privateKeyFile: word, sudoPasswordFrom: {file: open}}}
    - name: f
      address: 192.0.2.6
      roles: [worker]
      ssh:
        bastion: {address: b, privateKeyFile: damaged, passwordFrom: {file: empty}}
    - {name: g, address: 192.0.2.7, roles: [worker], ssh: {privateKeyFile: putty}}
    - {name: h, address: 192.0.2.8, roles: [worker], ssh: {privateKeyFile: .}}
  hooks:
    - {name: a, phase: preInstall, script: hook.sh, materials: [none, .]}
  registry:
    auths:
      - {registry: a.example.com, username: me, passwordFrom: {file: empty}, caFile: word}
      - {registry: b.example.com, username: me, passwordFrom: {file: word}, caFile: none}
`

func TestCheckFiles_FindsUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	plain, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("word"))
	if err != nil {
		t.Fatal(err)
	}
	write("plain", string(pem.EncodeToMemory(plain)), 0o600)
	write("locked", string(pem.EncodeToMemory(locked)), 0o600)
	write("plain.pub", "ssh-ed25519 AAAA me", 0o644)
	write("word", "word\n", 0o600)
	write("open", "word\n", 0o604)
	write("empty", "", 0o600)
	write("damaged", string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte("x")})), 0o600)
	write("putty", "PuTTY-User-Key-File-3: ssh-ed25519\n", 0o600)
	write("hook.sh", "#!/bin/sh\n", 0o644)

	_, err = Loader{Files: &Paths{Dir: dir}}.Load(filepath.Join(dir, "prod.yaml"), []byte(filesCluster))
	if err == nil {
		t.Fatal("not refused")
	}
	golden.Check(t, "testdata/files.golden", strings.ReplaceAll(err.Error(), dir, "DIR")+"\n")
}

// TestLoad_ReportsFilesToo expects the problems of the text and of its files in one report: a
// user who fixes one problem must not find the next one only afterwards.
func TestLoad_ReportsFilesToo(t *testing.T) {
	const text = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  hosts:
    - {name: a, adress: 192.0.2.1, roles: [control-plane], ssh: {privateKeyFile: none}}
  kubernetes: {version: v1.99.0}
  bundle: ./none.tar.zst
`
	l := loader
	l.Files = &Paths{Dir: t.TempDir()}
	_, err := l.Load("prod.yaml", []byte(text))
	var list diag.List
	if !errors.As(err, &list) {
		t.Fatalf("not refused with a diag.List: %v", err)
	}
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprintf("%d:%d %s %s", d.Line, d.Column, d.ID, d.Hint))
	}
	want := []string{
		"6:17 unknown-field did you mean address?",
		"6:82 ssh-key-unreadable use a private key that the hosts accept, or remove the field to use the agent and the default keys",
		"7:25 unsupported-version take v1.37.1",
		"8:11 file-missing run 'slipway bundle build' to create one, or leave the field out: Slipway then finds or builds the right bundle",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPaths_ResolveNames(t *testing.T) {
	p := Paths{Dir: "/clusters", Home: "/home/me"}
	for name, want := range map[string]string{
		"a": "/clusters/a", "./a": "/clusters/a", "../a": "/a", "/a": "/a", "~": "/home/me",
		"~/.ssh/a": "/home/me/.ssh/a", "~you": "/clusters/~you", "": "",
	} {
		if got := p.Resolve(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestAbsolute_ChangesEveryPath(t *testing.T) {
	loaded, err := Load("/clusters/prod.yaml", []byte(filesCluster))
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Cluster
	if err := MakePathsAbsolute(c, Paths{Dir: "/clusters"}); err != nil {
		t.Fatal(err)
	}
	got := []string{
		c.Spec.Bundle, c.Spec.SSH.PrivateKeyFile, c.Spec.Hosts[2].SSH.PassphraseFrom.File,
		c.Spec.Hosts[5].SSH.Bastion.PrivateKeyFile, c.Spec.Hooks[0].Script, c.Spec.Hooks[0].Materials[0],
		c.Spec.Registry.Auths[0].PasswordFrom.File, c.Spec.Registry.Auths[0].CAFile,
	}
	want := []string{
		"/clusters/none.tar", "/clusters/plain", "/clusters/word", "/clusters/damaged",
		"/clusters/hook.sh", "/clusters/none", "/clusters/empty", "/clusters/word",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.Spec.Bundle = "registry.example.com/slipway/bundle:v1.37.1"
	if err := MakePathsAbsolute(c, Paths{Dir: "/clusters"}); err != nil || c.Spec.Bundle[0] == '/' {
		t.Errorf("a reference became a path: %s %v", c.Spec.Bundle, err)
	}
}
