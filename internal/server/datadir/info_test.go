package datadir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHold_SurvivesRestart(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if h, held, err := d.Hold(); held || err != nil {
		t.Errorf("%+v, %v, %v", h, held, err)
	}
	want := Hold{Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Reason: "restored"}
	if err := errors.Join(d.Release(), d.SetHold(Hold{Reason: "old"}), d.SetHold(want)); err != nil {
		t.Fatal(err)
	}
	closeDir(t, d)
	if d, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer closeDir(t, d)
	got, held, err := d.Hold()
	if diff := cmp.Diff(want, got); diff != "" || !held || err != nil {
		t.Errorf("held %v, %v (-want +got):\n%s", held, err, diff)
	}
	writeFile(t, d.Path(holdFile), "{")
	_, _, err = d.Hold()
	wantID(t, err, idDamaged)
	if err := d.Release(); err != nil {
		t.Error(err)
	}
	if _, held, err := d.Hold(); held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
}

func TestReadInfo_ReadsWhileServerRuns(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	_, err := ReadInfo(path)
	wantID(t, err, idMissing)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = ReadInfo(path)
	wantID(t, err, idMissing)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDir(t, d)
	info, err := ReadInfo(path)
	if diff := cmp.Diff(d.info, info); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	text, err := os.ReadFile(d.Path(infoFile))
	var fields map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &fields)); err != nil || len(fields) != 4 {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.WriteFile(d.Path(infoFile), text[:9], 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadInfo(path)
	wantID(t, err, idDamaged)
}

func TestMarkStarted_SurvivesRestart(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	for i, fresh := range []bool{true, true, false} {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if d.IsFresh() != fresh {
			t.Errorf("start %d: fresh is %v, want %v", i, d.IsFresh(), fresh)
		}
		if i > 0 { // the first start was interrupted
			if err := errors.Join(d.MarkStarted(), d.MarkStarted()); err != nil || d.IsFresh() {
				t.Errorf("start %d: fresh is %v, %v", i, d.IsFresh(), err)
			}
		}
		closeDir(t, d)
	}
}
