package lifecycle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/lifecycle/supportbundle/supportbundletest"
)

// unpacked returns the files of a support bundle.
func unpacked(t *testing.T, b []byte) map[string]string {
	t.Helper()
	zr, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer zr.Close()
	out := map[string]string{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		content, rerr := io.ReadAll(tr)
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(content)
	}
}

// TestDump_ContainsNoSecrets plants secrets in every source, each marked as a canary, and looks
// for them in the support bundle.
func TestDump_ContainsNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	fromFile := filepath.Join(w.home, "password")
	if err := os.WriteFile(fromFile, []byte("canary from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := w.Manifest()
	c.Spec.SSH.Password = `canary"login`
	c.Spec.Hosts[1].SSH.SudoPasswordFrom = &v1alpha1.SecretSource{File: fromFile}
	w.do(creating(c), event.Succeeded)
	w.API.PutObject("/readyz", object{"ok": true})
	w.API.PutObject("/api/v1/pods/x", supportbundletest.PodWithSecrets())
	w.API.PutObject("/api/v1/pods/y", supportbundletest.StaticPod())
	for _, m := range w.Hosts {
		m.PodLogs = []string{"kube-system_new/a/0.log", "kube-system_old/a/0.log"}
		m.PodLog = func(string) string { return "kept line\n" + strings.Join(supportbundletest.Leaks(), "\n") + "\n" }
		m.Prints = func(argv []string, out io.Writer) error {
			if argv[0] == "df" {
				return errors.New("df is stuck")
			}
			for _, line := range []string{
				"kept line", "login with canary\"login failed", "sudo: canary from a file", base64.StdEncoding.EncodeToString([]byte(`canary"login`)),
			} {
				fmt.Fprintln(out, line)
			}
			for _, line := range supportbundletest.Leaks() {
				fmt.Fprintln(out, line)
			}
			return nil
		}
	}
	var b bytes.Buffer
	if _, err := w.service().Dump(t.Context(), "prod", &b, nil); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, b.Bytes())
	for name, content := range files {
		login := base64.StdEncoding.EncodeToString([]byte(`canary"login`))
		for _, bad := range []string{"canary", lifecycletest.AdminSecret(), "00ca0a01", login} {
			if i := strings.Index(content, bad); i >= 0 {
				t.Errorf("%s holds %q: …%s…", name, bad, content[max(0, i-60):min(len(content), i+60)])
			}
		}
	}
	for name, want := range map[string]string{
		"prod/cluster.yaml": "kind: Cluster", "prod/info.json": `"verdict"`, "prod/hosts/w1/kubelet.log": "kept line",
		"prod/hosts/cp1/pods/kube-system_new/a/0.log": "kept line", "prod/hosts/cp1/facts.json": `"hostname"`,
		"prod/kubernetes/nodes.json": "cp1",
		"prod/kubernetes/pods.json":  "KEPT_NAME", "prod/missing.txt": "hosts/w1/disks.txt: df is stuck",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q: %.300s", name, want, files[name])
		}
	}
	kinds := []string{"operation.json", "plan.json", "journal.jsonl"}
	for name := range files {
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return strings.HasPrefix(name, "prod/operations/") && strings.HasSuffix(name, k) })
	}
	if len(kinds) > 0 {
		t.Errorf("the bundle lacks %v of an operation", kinds)
	}
}

// Hosts that hang are listed as missing, and the bundle has everything else. The API is
// queried even if all hosts hang. Only a cancelled dump writes no bundle.
func TestDump_ListsHostsThatHang(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	w.Hosts["cp1"].Prints = func(_ []string, out io.Writer) error { fmt.Fprintln(out, "kept line"); return nil }
	dumped := func(hang ...string) map[string]string {
		t.Helper()
		for _, m := range hang {
			w.Hosts[m].Hangs = true
		}
		var b bytes.Buffer
		warnings, err := w.impatient().Dump(t.Context(), "prod", &b, nil)
		if err != nil {
			t.Fatal(err)
		}
		files := unpacked(t, b.Bytes())
		if strings.Contains(files["prod/missing.txt"], "context ") {
			t.Errorf("missing.txt has words of the program: %s", files["prod/missing.txt"])
		}
		for _, m := range hang {
			if !slices.ContainsFunc(warnings, func(d diag.Diagnostic) bool { return d.ID == "dump-incomplete" && d.Host == m }) {
				t.Errorf("no warning about %s: %v", m, warnings)
			}
			if !strings.Contains(files["prod/missing.txt"], "hosts/"+m+": ") {
				t.Errorf("%s is not listed as missing: %s", m, files["prod/missing.txt"])
			}
		}
		if !strings.Contains(files["prod/kubernetes/nodes.json"], "cp1") {
			t.Errorf("with %v hanging, the API was not queried: %s", hang, files["prod/missing.txt"])
		}
		return files
	}
	if files := dumped("w1"); !strings.Contains(files["prod/hosts/cp1/kubelet.log"], "kept line") {
		t.Errorf("cp1 was not queried: %s", files["prod/missing.txt"])
	}
	dumped("w1", "cp1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.impatient().Dump(ctx, "prod", io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled dump ends with %v", err)
	}
}

// TestDump_ListsUnreachableHosts checks that unreachable hosts are listed.
func TestDump_ListsUnreachableHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	for _, m := range w.Hosts {
		m.Down = errors.New("cut")
	}
	var b bytes.Buffer
	warnings, err := w.service().Dump(t.Context(), "prod", &b, nil)
	if err != nil || len(warnings) != 3 || warnings[1].Host != "cp1" || !strings.Contains(warnings[1].Message, "no data of this host") {
		t.Fatalf("%v, %v", warnings, err)
	}
	files := unpacked(t, b.Bytes())
	for _, want := range []string{"hosts/cp1: cp1 does not answer", "hosts/w1: w1 does not answer"} {
		if !strings.Contains(files["prod/missing.txt"], want) {
			t.Errorf("missing.txt lacks %q: %s", want, files["prod/missing.txt"])
		}
	}
	if _, err := w.service().Dump(t.Context(), "gone", io.Discard, nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("a cluster that is not saved: %v", err)
	}
}

// TestDump_IgnoresForeignFileNames: file names from a host are neither read nor written if a kubelet
// would not report them.
func TestDump_IgnoresForeignFileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	w.API.PutObject("/readyz", object{"ok": true})
	good := []string{"kube-system_a_1/c/0.log", "kube-system_a.b_1/c-d/12.log"}
	bad := []string{
		"../../../home/op/.bashrc", "kube-x/../../../../etc/0.log", "kube-x/../0.log", "/etc/shadow", "-f", "kube-x/a.log",
		"kube-x/a/b/0.log", "kube-x/a/0.log\n", "kube-x/a\n9 /etc/shadow\nb/0.log", "default_a_1/c/0.log", "kube-x/a/0.log.gz",
		"/kube-x/a/0.log", "kube-x/.a/0.log", "kube-system_a_1/c/./0.log", good[0],
	}
	var read []string
	w.Hosts["cp1"].PodLogs = slices.Concat(good, bad)
	w.Hosts["cp1"].PodLog = func(name string) string {
		read = append(read, name)
		return "line\n"
	}
	var b bytes.Buffer
	if _, err := w.service().Dump(t.Context(), "prod", &b, nil); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(append(slices.Clone(good), good[0]), read); d != "" {
		t.Errorf("files that are read (-want +got):\n%s", d)
	}
	files := unpacked(t, b.Bytes())
	for name := range files {
		if !filepath.IsLocal(name) || !strings.HasPrefix(name, "prod/") {
			t.Errorf("the archive has %q", name)
		}
	}
	want := `"hosts/cp1/pods/kube-system_a_1/c/0.log": the name is not allowed or is already used`
	if !strings.Contains(files["prod/missing.txt"], want) {
		t.Errorf("a duplicate name is not reported: %s", files["prod/missing.txt"])
	}
}
