package serverbackup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// reports collects the reported results.
type reports struct {
	results []string
	ok      bool
}

func (r *reports) add(ok bool, message string) {
	r.ok, r.results = ok, append(r.results, message)
}

// runFor runs a schedule for some time of the bubble.
func runFor(t *testing.T, m *Maker, s Schedule, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := m.RunSchedule(ctx, s); err != nil {
		t.Error(err)
	}
}

// listNames returns the names of the files in a directory.
func listNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func directoryTarget(name, path string, keep int) Target {
	return Target{Name: name, Keep: keep, Open: func(context.Context) (copies.Target, error) { return copies.OpenDirectory(path) }}
}

// newScheduled returns a maker with the clock of the bubble.
func newScheduled(t *testing.T) (*Maker, string) {
	t.Helper()
	m, d := newMaker(t)
	m.o.Now = time.Now
	return m, d.Path("backups")
}

func TestRunSchedule_KeepsNewestSetsAndContinuesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		var got reports
		s := Schedule{Interval: time.Hour, Keep: 3, Report: got.add}
		runFor(t, m, s, 4*time.Hour+30*time.Minute)
		if len(got.results) != 5 || !got.ok {
			t.Errorf("results %q", got.results)
		}
		names := listNames(t, dir)
		if len(names) != 3 || !strings.HasSuffix(names[0], ".tar") {
			t.Errorf("sets %v", names)
		}
		// The newest set is half an hour old: the next one is due in half an hour.
		got = reports{}
		runFor(t, m, s, 29*time.Minute)
		if len(got.results) > 0 {
			t.Errorf("a restart made a set early: %q", got.results)
		}
		runFor(t, m, s, 2*time.Minute)
		if len(got.results) != 1 || len(listNames(t, dir)) != 3 {
			t.Errorf("results %q, sets %v", got.results, listNames(t, dir))
		}
		v := Verifier{Key: m.PublicKey(), Signer: m.o.Signer}
		list, err := v.ListDirectory(t.Context(), dir)
		if err != nil || len(list) != 3 || slices.ContainsFunc(list, func(e Entry) bool { return e.State != Verified }) {
			t.Errorf("list %+v, %v", list, err)
		}
	})
}

func TestRunSchedule_RemovesIncompleteFilesAndKeepsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		h := &Header{ServerID: testID, Taken: testTime()}
		other := &Header{ServerID: "other", Taken: testTime()}
		plain, sealed := fileName(nameFor(h, m.o.Signer), false), fileName(nameFor(h, m.o.Signer), true)
		foreign := fileName(nameFor(other, m.o.Signer), false)
		keep := []string{"notes.txt", foreign, "." + foreign + ".ABCDEFGH.part"}
		for _, name := range append([]string{"." + plain + ".ABCDEFGH.part", "." + sealed + ".ABCDEFGH.part"}, keep...) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runFor(t, m, Schedule{Interval: time.Hour, Keep: 1}, time.Minute)
		names := listNames(t, dir)
		if len(names) != len(keep)+1 {
			t.Errorf("files %v", names)
		}
		for _, name := range keep {
			if !slices.Contains(names, name) {
				t.Errorf("%s was removed", name)
			}
		}
	})
}

func TestRunSchedule_NeverRemovesSetsOfUnverifiedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		_, otherKey := newDataDir(t)
		runFor(t, m, Schedule{Interval: time.Hour, Keep: 2}, 90*time.Minute)
		before := listNames(t, dir)
		// A planted name from the future does not push out real sets.
		planted := fileName(nameFor(&Header{ServerID: testID, Taken: time.Now().AddDate(1, 0, 0)}, otherKey), false)
		if err := os.WriteFile(filepath.Join(dir, planted), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		runFor(t, m, Schedule{Interval: time.Hour, Keep: 2}, time.Hour)
		names := listNames(t, dir)
		real := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == planted })
		if len(before) != 2 || len(real) != 2 || !slices.Contains(real, before[1]) {
			t.Errorf("files %v, before %v", names, before)
		}
	})
}

func TestRunSchedule_SendsCopiesAndTriesAgain(t *testing.T) {
	id := newIdentity(t)
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		near, far := t.TempDir(), filepath.Join(t.TempDir(), "missing")
		var got reports
		s := Schedule{
			Interval: time.Hour, Keep: 4, Recipients: []age.Recipient{id.Recipient()}, Report: got.add,
			Targets: []Target{directoryTarget("near", near, 2), directoryTarget("far", far, 0)},
		}
		runFor(t, m, s, 15*time.Minute)
		if got.ok || len(got.results) != 2 || !strings.Contains(got.results[1], "far") || len(listNames(t, near)) != 1 {
			t.Errorf("results %q, copies %v", got.results, listNames(t, near))
		}
		if len(listNames(t, dir)) != 1 {
			t.Errorf("a failed copy made other sets: %v", listNames(t, dir))
		}
		if err := os.Mkdir(far, 0o700); err != nil {
			t.Fatal(err)
		}
		runFor(t, m, s, 3*time.Hour) // a restart sends the missing copy
		if !got.ok || len(listNames(t, near)) != 2 || len(listNames(t, far)) != 4 || len(listNames(t, dir)) != 4 {
			t.Errorf("results %q; %v, %v, %v", got.results, listNames(t, near), listNames(t, far), listNames(t, dir))
		}
		list, err := Verifier{Signer: m.o.Signer}.ListTarget(t.Context(), openTestDir(t, far))
		if err != nil || len(list) != 4 || list[0].State != Named || !list[0].Encrypted {
			t.Fatalf("list %+v, %v", list, err)
		}
		file, err := Fetch(t.Context(), openTestDir(t, far), list[0].Name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadHeader(file, []age.Identity{id})
		if err != nil || !m.PublicKey().IsSignerOf(h.Signature) {
			t.Errorf("the fetched copy is not verified: %v", err)
		}
	})
}

func openTestDir(t *testing.T, path string) copies.Target {
	t.Helper()
	to, err := copies.OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestRunSchedule_EncryptsAgainWhenTargetsAreAdded(t *testing.T) {
	id := newIdentity(t)
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		runFor(t, m, Schedule{Interval: time.Hour, Keep: 4}, time.Minute)
		far := t.TempDir()
		runFor(t, m, Schedule{
			Interval: time.Hour, Keep: 4, Recipients: []age.Recipient{id.Recipient()}, Targets: []Target{directoryTarget("far", far, 0)},
		}, time.Minute)
		if names := listNames(t, far); len(names) != 1 || !strings.HasSuffix(names[0], sealedSuffix) || len(listNames(t, dir)) != 2 {
			t.Errorf("copies %v, sets %v", names, listNames(t, dir))
		}
	})
}

func TestRunSchedule_ReportsFailureAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		var got reports
		broken := true
		m.o.Snapshots = snapshots{content: database(), before: func() error {
			if broken {
				return errors.New("etcd has no leader")
			}
			return nil
		}}
		s := Schedule{Interval: 24 * time.Hour, Keep: 2, Report: got.add}
		runFor(t, m, s, 25*time.Minute)
		if got.ok || len(got.results) != 3 || !strings.Contains(got.results[0], "etcd has no leader") || len(listNames(t, dir)) > 0 {
			t.Errorf("results %q, files %v", got.results, listNames(t, dir))
		}
		broken = false
		runFor(t, m, s, 15*time.Minute)
		if !got.ok || len(listNames(t, dir)) != 1 {
			t.Errorf("results %q, files %v", got.results, listNames(t, dir))
		}
	})
}

func TestRunSchedule_TriesAgainWhenClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newScheduled(t)
		var back time.Duration
		m.o.Now = func() time.Time { return time.Now().Add(-back) }
		failed := false
		m.o.Snapshots = snapshots{content: database(), before: func() error {
			if failed {
				return nil
			}
			failed = true
			return errors.New("etcd has no leader")
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var got reports
		s := Schedule{Interval: 24 * time.Hour, Keep: 2, Report: func(ok bool, message string) {
			got.add(ok, message)
			back = 48 * time.Hour
		}}
		if err := m.RunSchedule(ctx, s); err != nil || !got.ok || len(listNames(t, dir)) != 1 {
			t.Errorf("%v, results %q, files %v", err, got.results, listNames(t, dir))
		}
	})
}

func TestRunSchedule_NamesFullDisk(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		m, _ := newMaker(t)
		smalldisk.Mount(t, dir, "256k")
		m.o.Snapshots = snapshots{content: make([]byte, 400<<10)}
		ctx, cancel := context.WithCancel(t.Context())
		var message string
		err := m.RunSchedule(ctx, Schedule{Interval: time.Hour, Keep: 2, Directory: dir, Report: func(ok bool, text string) {
			message = text
			cancel()
		}})
		if err != nil || !strings.Contains(message, idNoRoom) || !strings.Contains(message, dir) {
			t.Errorf("message %q, %v", message, err)
		}
		requireEmpty(t, dir)
	})
}

func TestListDirectory_ReportsStateOfEachSet(t *testing.T) {
	id := newIdentity(t)
	m, d := newMaker(t)
	_, raw := takeSet(t, m)
	_, sealed := takeSet(t, m, id.Recipient())
	other, _ := newMaker(t)
	_, foreign := takeSet(t, other)
	at := func(day int) *Header {
		return &Header{ServerID: testID, Taken: testTime().AddDate(0, 0, day), Snapshot: &SnapshotInfo{Revision: 4711}}
	}
	want := map[string]State{}
	for _, f := range []struct {
		header    *Header
		encrypted bool
		raw       []byte
		state     State
	}{
		{at(0), false, raw, Verified},
		{at(1), false, raw, Damaged}, // an older set has its name
		{at(2), false, raw[:3000], Damaged},
		{at(3), false, foreign, Unverified},
		{at(4), true, sealed, Named},
		{at(5), false, raw[:len(raw)-1024], Damaged},
		{at(6), true, sealed[:len(sealed)-100], Damaged},
	} {
		name := fileName(nameFor(f.header, m.o.Signer), f.encrypted)
		if err := os.WriteFile(d.Path("backups", name), f.raw, 0o600); err != nil {
			t.Fatal(err)
		}
		want[name] = f.state
	}
	list, err := Verifier{Key: m.PublicKey(), Signer: m.o.Signer}.ListDirectory(t.Context(), d.Path("backups"))
	if err != nil || len(list) != len(want) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, e := range list {
		if e.State != want[e.Name] || (e.Problem != "") != (e.State == Damaged) {
			t.Errorf("%s is %s (%s), want %s", e.Name, e.State, e.Problem, want[e.Name])
		}
	}
}

// longTarget sends more bytes than it lists.
type longTarget struct {
	copies.Target
	more int
}

func (l longTarget) Fetch(ctx context.Context, name string, to io.Writer) error {
	if err := l.Target.Fetch(ctx, name, to); err != nil {
		return err
	}
	_, err := to.Write(make([]byte, l.more))
	return err
}

func TestFetch_RefusesOtherNamesAndSizes(t *testing.T) {
	id := newIdentity(t)
	m, d := newMaker(t)
	_, sealed := takeSet(t, m, id.Recipient())
	name := fileName(nameFor(&Header{ServerID: testID, Taken: testTime()}, m.o.Signer), true)
	if err := os.WriteFile(d.Path("backups", name), sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	from, out := openTestDir(t, d.Path("backups")), t.TempDir()
	_, err := Fetch(t.Context(), from, "../../etc/passwd", out)
	wantID(t, err, idBadFile)
	_, err = Fetch(t.Context(), from, fileName(nameFor(&Header{ServerID: "x", Taken: testTime()}, nil), true), out)
	wantID(t, err, idBadFile)
	if _, err := Fetch(t.Context(), longTarget{from, 1}, name, out); err == nil {
		t.Error("more bytes than listed were fetched")
	}
	requireEmpty(t, out)
	file, err := Fetch(t.Context(), from, name, out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Fetch(t.Context(), from, name, file)
	wantID(t, err, "backup-exists")
}
