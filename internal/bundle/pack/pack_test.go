package pack_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle/pack"
)

func TestWrite_IsDeterministic(t *testing.T) {
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	if err := os.WriteFile(prog, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	members := []pack.Member{
		{Name: "usr/local/bin/kube", Path: prog},
		{Name: "usr/local/bin/kubelet", Link: "kube"},
		{Name: "etc/passwd", Content: []byte("root"), Mode: 0o644},
		{Name: "tmp", Dir: true, Mode: 0o777, Sticky: true},
		{Name: "usr/local/bin/su", Path: prog, Setuid: true},
	}
	first, err := pack.Write(t.Context(), filepath.Join(dir, "a.tar.gz"), members)
	if err != nil {
		t.Fatal(err)
	}
	members[0], members[2] = members[2], members[0]
	second, err := pack.Write(t.Context(), filepath.Join(dir, "b.tar.gz"), members)
	if err != nil {
		t.Fatal(err)
	}
	first.Path, second.Path = "", ""
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("another order gives another file:\n%s", diff)
	}
	want := []string{
		"etc/ 0755 ", "etc/passwd 0644 root", "tmp/ 01777 ", "usr/ 0755 ", "usr/local/ 0755 ", "usr/local/bin/ 0755 ",
		"usr/local/bin/kube 0755 program", "usr/local/bin/kubelet 0777 -> kube", "usr/local/bin/su 04755 program",
	}
	if diff := cmp.Diff(want, listArchive(t, filepath.Join(dir, "a.tar.gz"))); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"etc/passwd", "usr/local/bin/kube", "usr/local/bin/kubelet", "usr/local/bin/su"}, first.Members); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// listArchive reads a tar; it wants no time, no owner, and an end.
func listArchive(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has a time or an owner: %+v", h.Name, h)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		line := h.Name + " 0" + strings.TrimLeft(string(octalField(h.Mode)), "0") + " " + string(content)
		if h.Linkname != "" {
			line = strings.TrimSpace(line) + " -> " + h.Linkname
		}
		out = append(out, line)
	}
}

func octalField(n int64) []byte {
	var b []byte
	for ; n > 0; n /= 8 {
		b = append([]byte{byte('0' + n%8)}, b...)
	}
	return b
}

func TestWrite_RefusesInvalidMembers(t *testing.T) {
	for name, members := range map[string][]pack.Member{
		"a name that leaves": {{Name: "../x", Content: []byte("x")}},
		"no name":            {{Name: "", Content: []byte("x")}},
		"twice":              {{Name: "x"}, {Name: "/x"}},
		"file as directory":  {{Name: "x"}, {Name: "x/y"}},
		"missing file":       {{Name: "x", Path: "/does/not/exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "x.tar.gz")
			if _, err := pack.Write(t.Context(), dst, members); err == nil {
				t.Error("accepted")
			}
			if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pack.Write(ctx, filepath.Join(t.TempDir(), "x"), []pack.Member{{Name: "x"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
