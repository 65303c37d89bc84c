package supportbundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A shortened list ends between two items, a shortened journal begins with a whole line.
func TestArchive_ShortensLargeFiles(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var items []any
	for i := range 8 {
		items = append(items,
			map[string]any{
				"metadata": map[string]any{"name": fmt.Sprintf("pod-%d", i), "namespace": []string{"default", "kube-system"}[i/6]},
				"spec":     map[string]any{"note": long},
			})
	}
	raw, err := json.Marshal(map[string]any{"kind": "PodList", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	d := &archive{redactor: &redactor{}, tar: tar.NewWriter(&b)}
	d.addList("pods.json", raw)
	d.addList("nodes.json", []byte(`{"kind":"Status"}`))
	var lines [][]byte
	for i := range 8 {
		lines = append(lines, fmt.Appendf(nil, "{\"seq\":%d,\"message\":%q}\n", i, long))
	}
	d.addLines("journal.jsonl", lines)
	d.addText("kubelet.log", []byte(long+"\nlast"))
	if d.err != nil {
		t.Fatal(d.err)
	}
	files := map[string]string{}
	for tr := tar.NewReader(&b); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		text, _ := io.ReadAll(tr)
		files[h.Name] = string(text)
	}
	var list struct {
		Kind  string
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(files["pods.json"]), &list); err != nil || len(list.Items) != 3 ||
		list.Items[0].Metadata.Name != "pod-6" || list.Kind != "PodList" {
		t.Errorf("the list is not whole (%v), or the cluster's own do not come first: %+v", err, list)
	}
	last := strings.Split(strings.TrimSpace(files["journal.jsonl"]), "\n")
	for _, line := range last {
		if !json.Valid([]byte(line)) || len(last) != 3 {
			t.Errorf("%d lines, and one is %.60s", len(last), line)
		}
	}
	if text := files["kubelet.log"]; !strings.HasSuffix(text, "xxx\nlast") || !strings.HasPrefix(text, "(first 5 bytes") {
		t.Errorf("the log is %.60s", text)
	}
	want := []string{
		"journal.jsonl: first 5 of 8 lines omitted", "nodes.json: the API response is not a list",
		"pods.json: 5 of 8 items omitted",
	}
	slices.Sort(d.missing)
	if diff := cmp.Diff(want, d.missing); diff != "" {
		t.Errorf("what is missing (-want +got):\n%s", diff)
	}
}

// The rest of a line may be the rest of a secret.
func TestTailBuffer_BeginsWithWholeLine(t *testing.T) {
	var out bytes.Buffer
	b := &tailBuffer{Buffer: &out}
	for range 3 {
		fmt.Fprintf(b, "password=%s\n", strings.Repeat("x", maxLogBytes))
	}
	if got := dropFirstLine(out.Bytes()); !b.cut || len(got) > 2*maxLogBytes || len(got) > 0 && !bytes.HasPrefix(got, []byte("password=")) {
		t.Errorf("cut: %t, and %d bytes begin with %.20s", b.cut, len(got), got)
	}
}
