package local_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/local"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func TestConnect_LeavesNothing(t *testing.T) {
	requireroot.Need(t, "the helper")
	dir := t.TempDir()
	d := &local.Dialer{Helper: remotetest.BuildHelper(t), Dirs: []string{filepath.Join(dir, "missing"), dir}}
	h, err := d.Connect(t.Context(), v1alpha1.Host{Name: "here"}, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	hidden, herr := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || herr != nil || len(left)+len(hidden) != 0 {
		t.Errorf("the helper runs and leaves %v %v", left, hidden)
	}
	got, err := h.Check(t.Context(), op.List{op.Facts{}})
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	var facts op.HostFacts
	if err := json.Unmarshal(got[0].Output, &facts); err != nil || facts.Arch != runtime.GOARCH {
		t.Errorf("the facts are %+v, %v", facts, err)
	}
}

func TestConnect_ExplainsRefusals(t *testing.T) {
	requireroot.Need(t, "the helper")
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	tests := map[string]struct {
		reason string
		d      local.Dialer
		host   v1alpha1.Host
		want   remote.Reason
	}{
		"arch": {"the file says otherwise", local.Dialer{}, v1alpha1.Host{Name: "here", Arch: other}, remote.WrongArch},
		"missing": {
			"a bare clone",
			local.Dialer{Helper: func(string) (embedded.Helper, error) { return embedded.Helper{}, embedded.ErrMissing }},
			v1alpha1.Host{Name: "here"},
			remote.HelperFailed,
		},
		"directory": {
			"nowhere to run it from",
			local.Dialer{Helper: remotetest.FakeHelper(t), Dirs: []string{"/proc"}},
			v1alpha1.Host{Name: "here"},
			remote.NoExec,
		},
		"program": {
			"something that is no program",
			local.Dialer{Helper: remotetest.FakeHelper(t), Dirs: []string{t.TempDir()}},
			v1alpha1.Host{Name: "here"},
			remote.NoExec,
		},
		"another": {
			"a program that is not what it should be",
			local.Dialer{Helper: remotetest.PackedHelper(t, []byte("#!/bin/sh\necho no\n")), Dirs: []string{t.TempDir()}},
			v1alpha1.Host{Name: "here"},
			remote.NoExec,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.d.Connect(t.Context(), tt.host, remote.Options{})
			var e *remote.Error
			if !errors.As(err, &e) || e.Reason != tt.want || e.Host != "here" {
				t.Errorf("%s: %v", tt.reason, err)
			}
		})
	}
}
