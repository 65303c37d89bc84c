package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/diskspace"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

const mib = 1 << 20

// testGuard returns a guard of a disk of 1 GiB.
func testGuard(free int64) *writeGuard {
	g := &writeGuard{
		freeBytes: func(string) (int64, int64, error) { return free, 1 << 30, nil }, refused: make(chan struct{}, 1),
	}
	g.isActive.Store(true)
	return g
}

func TestWriteGuard_AcceptsWritesDuringStart(t *testing.T) {
	g := testGuard(0)
	g.isActive.Store(false)
	request, _ := requestTo("create", "", 100)
	w := httptest.NewRecorder()
	g.wrap(answer(http.StatusCreated, "")).ServeHTTP(w, request)
	if w.Code != http.StatusCreated {
		t.Errorf("a write during the start got %d: the server could not start with a full disk", w.Code)
	}
}

func TestReserveSpace_KeepsSizeAndContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := reserveSpace(path, mib, mib); err != nil {
		t.Errorf("a file that does not exist yet: %v", err)
	}
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after unix.Stat_t
	if err := errors.Join(reserveSpace(path, mib, mib), unix.Stat(path, &before)); err != nil {
		t.Fatal(err)
	}
	if before.Blocks*blockBytes < mib {
		t.Errorf("%d bytes are reserved", before.Blocks*blockBytes)
	}
	if err := errors.Join(reserveSpace(path, mib, mib), unix.Stat(path, &after)); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); string(content) != "data" || err != nil || after.Blocks != before.Blocks {
		t.Errorf("the file has %q, %v, and %d blocks after %d", content, err, after.Blocks, before.Blocks)
	}
}

func TestReserveSpace_LeavesSpaceForStart(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "4m")
		path := filepath.Join(dir, "db")
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := reserveSpace(path, mib, 3*mib); err == nil {
			t.Error("the disk has less space than must remain")
		}
		if err := reserveSpace(path, mib, 2*mib); err != nil {
			t.Error(err)
		}
	})
}

func TestSegment_KeepsSpaceUntilNextStart(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "24m")
		wal := filepath.Join(dir, "member", "wal")
		first, second := filepath.Join(wal, firstSegment), filepath.Join(wal, secondSegment)
		if err := reuseSegment(dir); err != nil {
			t.Errorf("the directory is new: %v", err)
		}
		if err := os.MkdirAll(wal, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(reuseSegment(dir), keepSegment(dir)); err != nil {
			t.Fatal(err)
		}
		requireReserved(t, first, segmentBytes)

		// A process was killed with both segments, and with records in one of them.
		if err := errors.Join(os.Rename(first, second), keepSegment(dir), reuseSegment(dir)); err != nil {
			t.Fatal(err)
		}
		requireReserved(t, first, segmentBytes)
		if _, err := os.Lstat(second); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the unused segment still has space: %v", err)
		}
		if err := errors.Join(os.Rename(first, second), writeAt(second, "a record"), reuseSegment(dir)); err != nil {
			t.Fatal(err)
		}
		requireReserved(t, first, segmentBytes)
		if content, err := os.ReadFile(first); err != nil || len(bytes.Trim(content, "\x00")) > 0 {
			t.Errorf("the segment has content of an earlier process: %v", err)
		}

		if err := os.Remove(first); err != nil {
			t.Fatal(err)
		}
		smalldisk.Fill(t, filepath.Join(dir, "other"), mib)
		if err := keepSegment(dir); err != nil {
			t.Errorf("with a full disk: %v", err)
		}
		if _, err := os.Lstat(first); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a part of a segment remains: %v", err)
		}
	})
}

// writeAt writes text at the beginning of an existing file.
func writeAt(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// requireReserved fails the test if a file has less space on disk.
func requireReserved(t *testing.T, path string, want int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*blockBytes < want {
		t.Fatalf("%s has %d bytes on disk, %v", path, st.Blocks*blockBytes, err)
	}
}

func TestCheckRoom_RefusesNewDatabaseWithoutRoom(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "48m")
		var refusal diag.List
		etcd := filepath.Join(dir, "etcd")
		if err := checkRoom(etcd); !errors.As(err, &refusal) || refusal[0].ID != idDiskFull {
			t.Errorf("a disk that is too small: %v", err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(databaseFile(etcd)), 0o700), os.WriteFile(databaseFile(etcd), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := checkRoom(etcd); err != nil {
			t.Errorf("an existing database: %v", err)
		}
	})
}

// requestTo returns a request for a ConfigMap, with a collector for warnings.
func requestTo(verb, group string, size int) (*http.Request, *warningCollector) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/configmaps", bytes.NewReader(make([]byte, size)))
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: group, Resource: "configmaps"}
	w := &warningCollector{}
	return r.WithContext(warning.WithWarningRecorder(apirequest.WithRequestInfo(r.Context(), info), w)), w
}

type warningCollector struct{ texts []string }

func (w *warningCollector) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// answer returns a handler with a fixed response.
func answer(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func TestWriteGuard_RefusesWritesWithoutRoom(t *testing.T) {
	reserve := diskspace.Reserve(1 << 30)
	tests := []struct {
		name, reason string
		verb, group  string
		free         int64
		size         int
		external     bool
		want         int
	}{
		{"room", "the disk has room", "create", "", reserve + mib, 0, false, http.StatusOK},
		{"reserve", "etcd needs the reserve", "update", "", reserve - 1, 0, false, http.StatusInsufficientStorage},
		{"large body", "it would use the reserve", "patch", "", reserve + mib, mib, false, http.StatusInsufficientStorage},
		{"deletion", "it makes room, and may use half of the reserve", "delete", "", reserve/2 + 1, 0, false, http.StatusOK},
		{"deletion without reserve", "etcd needs the rest", "deletecollection", "", reserve/2 - 1, 0, false, http.StatusInsufficientStorage},
		{"read", "it writes nothing", "get", "", 0, 0, false, http.StatusOK},
		{"watch", "it writes nothing", "watch", "", 0, 0, false, http.StatusOK},
		{"review", "only its response is created", "create", "authorization.k8s.io", 0, 0, false, http.StatusOK},
		{"external etcd", "its disk is not this one", "create", "", 0, 0, true, http.StatusOK},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := testGuard(test.free)
			g.external = test.external
			r, _ := requestTo(test.verb, test.group, test.size)
			w := httptest.NewRecorder()
			g.wrap(answer(http.StatusOK, "done")).ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("status %d instead of %d: %s", w.Code, test.want, test.reason)
			}
			if g.pending.Load() != 0 {
				t.Errorf("%d bytes are still reserved", g.pending.Load())
			}
			if refused := len(g.refused) == 1; refused != (test.want == http.StatusInsufficientStorage) {
				t.Errorf("a look at the database was started: %t", refused)
			}
			if test.want != http.StatusInsufficientStorage {
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
				t.Fatal(err)
			}
			if status.Code != http.StatusInsufficientStorage || status.Message == "" || status.Details.RetryAfterSeconds == 0 {
				t.Errorf("the response is %+v", status)
			}
		})
	}
}

func TestWriteGuard_CountsWritesInProgress(t *testing.T) {
	g := testGuard(diskspace.Reserve(1<<30) + 10*mib)
	started, finish, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r, _ := requestTo("create", "", 2*mib)
		g.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(started)
			<-finish
		})).ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-started
	create := func() int {
		r, _ := requestTo("create", "", mib)
		w := httptest.NewRecorder()
		g.wrap(answer(http.StatusOK, "")).ServeHTTP(w, r)
		return w.Code
	}
	if got := create(); got != http.StatusInsufficientStorage {
		t.Errorf("status %d next to a large write", got)
	}
	close(finish)
	<-done
	if got := create(); got != http.StatusOK {
		t.Errorf("status %d after the large write", got)
	}
}

func TestWriteGuard_ChangesOnlyRefusalsOfDatabase(t *testing.T) {
	large := strings.Repeat("x", 2*maxRefusal)
	tests := []struct {
		name, reason string
		status       int
		body         string
		wantStatus   int
		wantBody     string // "" accepts any
	}{
		{"success", "it passes", http.StatusCreated, "made", http.StatusCreated, "made"},
		{"conflict", "it passes", http.StatusConflict, etcdFull, http.StatusConflict, etcdFull},
		{"internal error", "it passes after a check", http.StatusInternalServerError, "failed", http.StatusInternalServerError, "failed"},
		{"large error", "its end is cut", http.StatusInternalServerError, large, http.StatusInternalServerError, large[:maxRefusal]},
		{
			"full database", "etcd's error has the text", http.StatusInternalServerError,
			"etcdserver: mvcc: database space exceeded", http.StatusInsufficientStorage, "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := testGuard(1 << 30)
			r, _ := requestTo("create", "", 0)
			w := httptest.NewRecorder()
			g.wrap(answer(test.status, test.body)).ServeHTTP(w, r)
			if w.Code != test.wantStatus || test.wantBody != "" && w.Body.String() != test.wantBody {
				t.Errorf("%d %.100q: %s", w.Code, w.Body, test.reason)
			}
			if test.wantBody != "" && w.Header().Get("Content-Type") != "text/plain" {
				t.Errorf("the header has changed: %v", w.Header())
			}
			if refused := len(g.refused) == 1; refused != (test.wantBody == "") {
				t.Errorf("a look at the database was started: %t", refused)
			}
		})
	}
}

func TestWriteGuard_WarnsFromEightyPercent(t *testing.T) {
	for used, want := range map[int64]int{79: 0, 80: 1, 100: 1} {
		g := testGuard(1 << 30)
		g.usage.Store(&databaseUsage{Bytes: used, Quota: 100})
		r, warnings := requestTo("create", "", 0)
		g.wrap(answer(http.StatusOK, "")).ServeHTTP(httptest.NewRecorder(), r)
		if len(warnings.texts) != want {
			t.Errorf("%d %%: %q", used, warnings.texts)
		}
	}
}

func TestUpkeep_ReturnsSpaceWhenItIsWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := []struct {
			name, reason string
			usage        databaseUsage
			since        time.Duration
			low, want    bool
		}{
			{"half is unused", "it is worth it", databaseUsage{Bytes: 100 * mib, InUse: 40 * mib}, time.Hour, false, true},
			{"too early", "it blocks requests", databaseUsage{Bytes: 100 * mib, InUse: 40 * mib}, 59 * time.Minute, false, false},
			{"most is used", "a new file would be as large", databaseUsage{Bytes: 100 * mib, InUse: 60 * mib}, time.Hour, false, false},
			{"small", "little would be gained", databaseUsage{Bytes: 15 * mib, InUse: mib}, time.Hour, false, false},
			{"low disk", "old revisions may have more", databaseUsage{Bytes: 15 * mib, InUse: 15 * mib}, lowInterval, true, true},
			{"low disk again", "it was tried just now", databaseUsage{Bytes: 15 * mib, InUse: mib}, lowInterval - 1, true, false},
		}
		for _, test := range tests {
			u := &upkeep{interval: time.Hour, returned: time.Now().Add(-test.since)}
			if got := u.isDue(test.usage, test.low); got != test.want {
				t.Errorf("%s: %t: %s", test.name, got, test.reason)
			}
		}
	})
}

func TestUpkeep_LooksOnceAfterManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		refused, tick := make(chan struct{}), make(chan time.Time)
		u := &upkeep{looked: time.Now()}
		looks := make(chan bool)
		go func() { looks <- u.wait(ctx, tick, refused) }()
		for range 10 { // they are dropped
			refused <- struct{}{}
		}
		<-time.After(refusedPeriod)
		refused <- struct{}{}
		if !<-looks {
			t.Error("the refusal started no look")
		}
		cancel()
		if u.wait(ctx, tick, refused) {
			t.Error("it continues after the end of its context")
		}
	})
}

func TestLibraryLog_PassesWarningsThatAreNotExpected(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(&libraryLog{slog.NewTextHandler(&out, nil)})
	log.Info("information")
	log.Warn("problem one", "object", "a")
	log.Error("sync failed", "err", errors.New(`namespaces "kube-system" not found`))
	log.With("part", "b").WithGroup("g").Error("problem two", "c", 1)
	for text, want := range map[string]bool{
		"information": false, "problem one": true, "kube-system": false, "problem two": true, "part=b": true, "g.c=1": true,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q is logged: %t\n%s", text, !want, out.String())
		}
	}
}

func TestEtcdLog_ReportsFatalErrorsAndEndsOnlyGoroutine(t *testing.T) {
	cause := errors.New("no space left on device")
	tests := []struct {
		name, reason string
		end          func(lg *zap.Logger)
	}{
		{"fatal", "it would end the process", func(lg *zap.Logger) { lg.Fatal("failed to commit tx", zap.Error(cause)) }},
		{"panic", "it would end the process too", func(lg *zap.Logger) { lg.Panic("failed to open database", zap.Error(cause)) }},
		{"two", "the first one counts", func(lg *zap.Logger) {
			defer lg.Fatal("another")
			lg.Fatal("failed to save", zap.Error(cause))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			failed := make(chan error, 1)
			lg := newEtcdLog(slog.New(slog.NewTextHandler(&out, nil)), failed).With(zap.String("member", "m"))
			lg.Info("information")
			lg.Warn("problem", zap.Int("size", 3))
			done, after := make(chan struct{}), false
			go func() {
				defer close(done)
				test.end(lg)
				after = true
			}()
			<-done
			if err := <-failed; !errors.Is(err, cause) || after {
				t.Errorf("reported: %v, and the goroutine continues: %t: %s", err, after, test.reason)
			}
			for text, want := range map[string]bool{"information": false, "problem": true, "size=3": true, "member=m": true} {
				if strings.Contains(out.String(), text) != want {
					t.Errorf("%q is logged: %t\n%s", text, !want, out.String())
				}
			}
		})
	}
}

func TestLeadership_WaitsForItsControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leadership{}
		stop, ran, ended := make(chan struct{}), false, false
		go l.runUnlessEnded(func() {
			<-stop
			ran = true
		})
		synctest.Wait()
		go func() {
			l.end()
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("the period has ended before its controllers")
		}
		close(stop)
		synctest.Wait()
		if !ran || !ended {
			t.Errorf("the controllers have ended: %t, the period: %t", ran, ended)
		}
		l.runUnlessEnded(func() { t.Error("controllers start after the end of the period") })
	})
}

func TestAuthenticationFile_FollowsItsSource(t *testing.T) {
	dir := t.TempDir()
	f := &authenticationFile{source: filepath.Join(dir, "source"), target: filepath.Join(dir, "target")}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	const issuer = "jwt:\n- issuer: {url: https://issuer.example, audiences: [slipway]}\n" +
		"  claimMappings: {username: {claim: sub, prefix: ''}}\n"
	tests := []struct {
		name, reason, content string
		changed               bool
		id                    string
	}{
		{"first", "the target is missing", head + issuer, true, ""},
		{"same", "nothing has changed", head + issuer, false, ""},
		{"unknown field", "it may be a typing error", head + "jtw: []\n", false, idAuthentication},
		{"anonymous", "the server decides this", head + "anonymous: {enabled: true}\n", false, idAuthentication},
		{"other kind", "the file has another purpose", "apiVersion: v1\nkind: Config\n", false, idAuthentication},
		{"no YAML", "an editor was interrupted", "{", false, idAuthentication},
		{"corrected", "it is as before the mistakes", head + issuer, false, ""},
		{"no issuers", "all were removed", head, true, ""},
	}
	var target string
	for _, test := range tests {
		if err := os.WriteFile(f.source, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		changed, err := f.update()
		var ids []string
		var list diag.List
		if errors.As(err, &list) {
			for _, d := range list {
				ids = append(ids, d.ID)
			}
		}
		if diff := cmp.Diff(strings.Fields(test.id), ids); diff != "" && (test.id != "" || err != nil) || changed != test.changed {
			t.Errorf("%s: changed %t, %v: %s", test.name, changed, err, test.reason)
		}
		text, err := os.ReadFile(f.target)
		if err != nil {
			t.Fatal(err)
		}
		if !changed && string(text) != target {
			t.Errorf("%s: the target has changed: %s", test.name, text)
		}
		target = string(text)
		if strings.Count(target, "path: /") != len(anonymousPaths) {
			t.Errorf("%s: other paths without credentials: %s", test.name, target)
		}
	}
	if err := os.Remove(f.source); err != nil {
		t.Fatal(err)
	}
	if _, err := f.update(); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestIsWithoutRoom_KnowsRefusals(t *testing.T) {
	refusal := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInsufficientStorage}}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("applying: %w", refusal), true}, {apierrors.NewBadRequest("no"), false}, {errors.New("other"), false}, {nil, false},
	} {
		if got := isWithoutRoom(test.err); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}
