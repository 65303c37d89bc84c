package lifecycle

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// unpacked is what a support bundle holds.
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

// TestDumpHoldsNoSecret plants secrets wherever one may come from, each marked
// as a canary, and looks for them in all that a support bundle holds.
func TestDumpHoldsNoSecret(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	fromFile := filepath.Join(w.home, "password")
	if err := os.WriteFile(fromFile, []byte("canary from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := w.cluster()
	c.Spec.SSH.Password = `canary"login`
	c.Spec.Hosts[1].SSH.SudoPasswordFrom = &v1alpha1.SecretSource{File: fromFile}
	w.do(Request{Kind: Create, Cluster: c}, event.Succeeded)
	w.api.put("/readyz", object{"ok": true})
	w.api.put("/api/v1/pods/x", podWithSecrets())
	w.api.put("/api/v1/pods/y", staticPod())
	for _, m := range w.machines {
		m.prints = func(argv []string, out io.Writer) error {
			if argv[0] == "find" {
				fmt.Fprintln(out, "2.5 /var/log/pods/kube-system_new/a/0.log\n1.5 /var/log/pods/kube-system_old/a/0.log")
				return nil
			}
			if argv[0] == "df" {
				return errors.New("df is stuck")
			}
			for _, line := range []string{
				"kept line", "login with canary\"login failed", "sudo: canary from a file", base64.StdEncoding.EncodeToString([]byte(`canary"login`)),
			} {
				fmt.Fprintln(out, line)
			}
			for _, line := range leaks {
				fmt.Fprintln(out, line)
			}
			return nil
		}
	}
	var b bytes.Buffer
	if err := w.service().Dump(t.Context(), "prod", &b, nil); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, b.Bytes())
	for name, content := range files {
		for _, bad := range []string{"canary", adminToken, "00ca0a01", base64.StdEncoding.EncodeToString([]byte(`canary"login`))} {
			if i := strings.Index(content, bad); i >= 0 {
				t.Errorf("%s holds %q: …%s…", name, bad, content[max(0, i-60):min(len(content), i+60)])
			}
		}
	}
	for name, want := range map[string]string{
		"prod/cluster.yaml": "kind: Cluster", "prod/info.json": `"verdict"`, "prod/hosts/w1/kubelet.log": "kept line",
		"prod/hosts/cp1/pods/kube-system_new/a/0.log": "kept line", "prod/hosts/cp1/facts.json": `"hostname"`, "prod/kubernetes/nodes.json": "cp1",
		"prod/kubernetes/pods.json": "KEPT_NAME", "prod/missing.txt": "hosts/w1/disks.txt: df is stuck",
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
		t.Errorf("there is no %v of an operation", kinds)
	}
}

// TestDumpOfADeadCluster: what cannot be reached is named.
func TestDumpOfADeadCluster(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	for _, m := range w.machines {
		m.down = errors.New("cut")
	}
	var b bytes.Buffer
	if err := w.service().Dump(t.Context(), "prod", &b, nil); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, b.Bytes())
	for _, want := range []string{"hosts/cp1: cp1 does not answer", "hosts/w1: w1 does not answer"} {
		if !strings.Contains(files["prod/missing.txt"], want) {
			t.Errorf("missing.txt lacks %q: %s", want, files["prod/missing.txt"])
		}
	}
	if err := w.service().Dump(t.Context(), "gone", io.Discard, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("a cluster that is not recorded: %v", err)
	}
}
