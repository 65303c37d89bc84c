package bundle

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func someConfig(change string, to string) []byte {
	var components, images []string
	for _, name := range everyComponent {
		components = append(components,
			`{"name":"`+name+`","version":"1","arch":"amd64","licence":"Apache-2.0","digest":"`+someDigest+`","size":1,"members":["a"]}`)
	}
	for _, name := range everyImage {
		images = append(images,
			`{"name":"`+name+`","version":"1","arch":"amd64","licence":"Apache-2.0","ref":"r/`+name+`:1","manifest":{"digest":"`+someDigest+
				`","size":1},"mediaType":"m","blobs":[{"digest":"`+someDigest+`","size":1}]}`)
	}
	text := `{"schemaVersion":1,"kubernetes":"v1.37.1","arches":["amd64"],"source":"modules",` +
		`"components":[` + strings.Join(components, ",") + `],"images":[` + strings.Join(images, ",") + `]}`
	return []byte(strings.Replace(text, change, to, 1))
}

func TestParseManifest_RefusesInvalidManifests(t *testing.T) {
	tests := map[string]struct{ reason, change, to, err string }{
		"good":           {"what a build writes", "", "", ""},
		"newer":          {"another schema may mean other things", `"schemaVersion":1`, `"schemaVersion":2`, "schema version 2"},
		"unknown field":  {"a field we do not know is of another schema", `"source"`, `"sauce"`, "unknown field"},
		"no version":     {"a bundle is of one Kubernetes", `"v1.37.1"`, `""`, "is not a version of Kubernetes"},
		"version a path": {"a version becomes a path", `"v1.37.1"`, `"../../../evil"`, "is not a version of Kubernetes"},
		"arch a path":    {"an architecture becomes a path", `["amd64"]`, `["a/../../../victim"]`, "is not a supported architecture"},
		"unknown arch":   {"no host has it", `["amd64"]`, `["z80"]`, "is not a supported architecture"},
		"arch twice":     {"it is counted twice", `["amd64"]`, `["amd64","amd64"]`, "is listed more than once"},
		"no arch":        {"a bundle is for something", `["amd64"]`, `[]`, "names no architecture"},
		"no component":   {"no host becomes a node without", `"name":"containerd"`, `"name":"other"`, "has no component containerd"},
		"no image":       {"no cluster comes up without", `"name":"kube-apiserver"`, `"name":"other"`, "has no image kube-apiserver"},
		"half of arches": {"it has each for every architecture", `["amd64"]`, `["amd64","arm64"]`, "for arm64"},
		"path as digest": {"a digest becomes a path", someDigest, "sha256:../../../etc/passwd", "is not a valid blob"},
		"negative size":  {"sizes are used to allocate", `"size":1`, `"size":-1`, "is not a valid blob"},
		"name":           {"a name becomes a path", `"crictl"`, `"../crictl"`, "is not a valid component name"},
		"no reference":   {"an image without a name cannot be imported", `"r/pause:1"`, `""`, "no reference"},
		"escape":         {"a terminal obeys it", `"licence":"Apache-2.0"`, `"licence":"MIT\u001b]52;c;eA==\u0007"`, "control characters"},
		"escape of 8":    {"some obey this as well", `"version":"1"`, `"version":"\u009b2J"`, "control characters"},
		"two at once":    {"anything after the end is not ours", `{"schemaVersion"`, `{} {"schemaVersion"`, "parsing config"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseManifest(someConfig(tt.change, tt.to))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %q", tt.reason, err, tt.err)
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add(someConfig("", ""))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"schemaVersion":1,"kubernetes":"v","arches":["a"],"components":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		for digest, size := range m.blobSizes() {
			if !digestForm.MatchString(digest) || size < 0 {
				t.Errorf("accepted blob %q of %d bytes", digest, size)
			}
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseManifest(again); err != nil {
			t.Errorf("the decoded content cannot be decoded again: %v", err)
		}
		if bytes.Contains(again, []byte("..")) && len(m.Components) > 0 && strings.Contains(m.Components[0].Name, "..") {
			t.Errorf("accepted component name %q", m.Components[0].Name)
		}
	})
}

func TestExplainError_RecognisesFullDisk(t *testing.T) {
	err := explainError("/var/bundle", &syscallError{syscall.ENOSPC})
	if !strings.Contains(err.Error(), IDDiskFull) {
		t.Errorf("got %v", err)
	}
}

type syscallError struct{ error }

func (e *syscallError) Unwrap() error { return e.error }
