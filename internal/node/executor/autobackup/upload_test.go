//go:build linux

package autobackup

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/node/op"
)

// TestJudgeCopy_RecordsCopyDespiteFailedRemoval checks that a completed copy is recorded, even if the oldest copy cannot be
// removed.
func TestJudgeCopy_RecordsCopyDespiteFailedRemoval(t *testing.T) {
	taken := time.Now().UTC().Truncate(time.Second)
	was := op.CopyOutcome{
		Target: "nas", Copied: taken.Add(-time.Hour), Kept: 3, Failed: "no route",
		Since: taken.Add(-time.Minute), Begun: taken, Unremoved: "locked",
	}
	failed := was
	failed.Begun, failed.Failed = time.Time{}, "full"
	for _, tc := range []struct {
		name    string
		sent    copies.Sent
		problem error
		want    op.CopyOutcome
	}{
		{"there", copies.Sent{Left: 3}, nil, op.CopyOutcome{Target: "nas", Copied: taken, Kept: 3}},
		{
			"there, with one too many",
			copies.Sent{Left: 4, Unremoved: errors.New("locked")},
			nil,
			op.CopyOutcome{Target: "nas", Copied: taken, Kept: 4, Unremoved: "locked"},
		},
		{"not there", copies.Sent{}, errors.New("full"), failed},
	} {
		if got := judgeCopy(was, tc.sent, tc.problem, taken); got != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// TestUnfitReason_RefusesHostDiskAndMemory checks that copies are written only to another disk, and not to memory.
func TestUnfitReason_RefusesHostDiskAndMemory(t *testing.T) {
	const there, snapshots, root = 1, 2, 3
	for _, tc := range []struct {
		name                   string
		there, snapshots, root uint64
		system, want           string
	}{
		{"another disk", there, snapshots, root, "ext4", ""},
		{"another disk, and one for all of the host", there, root, root, "nfs", ""},
		{"nothing mounted", root, root, root, "ext4", "on the same disk as the snapshots"},
		{"nothing mounted, and /var is", root, snapshots, root, "ext4", "the root directory"},
		{"memory", there, root, root, "tmpfs", "in memory"},
		{"memory without bounds", there, root, root, "ramfs", "in memory"},
	} {
		if got := unfitReason(tc.there, tc.snapshots, tc.root, tc.system); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestLimitedWriter_RefusesSetLargerThanFreeSpace checks that nothing is written if the set does not fit on the disk.
func TestLimitedWriter_RefusesSetLargerThanFreeSpace(t *testing.T) {
	dir := t.TempDir()
	d, err := copies.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = limitedWriter{d, dir, 1 << 60}.Put(t.Context(), "x", func(io.Writer) error { t.Error("it was written"); return nil })
	if err == nil || !strings.Contains(err.Error(), "is full") {
		t.Error(err)
	}
	if err := (limitedWriter{d, dir, 1}).Put(t.Context(), "x", func(io.Writer) error { return nil }); err != nil {
		t.Error(err)
	}
	s := &copySet{small: []backup.Content{{Data: []byte("1234")}}}
	s.set.Snapshot.Bytes = 38
	if s.totalBytes() != 42 {
		t.Errorf("a set has %d bytes", s.totalBytes())
	}
}
