package serverbackup

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
)

func TestHandler_RefusesBadRequests(t *testing.T) {
	m, _ := newMaker(t)
	const jsonType = "application/json"
	for _, tc := range []struct {
		name, reason, method, contentType, body string
		want                                    int
	}{
		{"valid", "recipients are optional", "POST", jsonType + "; charset=utf-8", "{}", 200},
		{"get", "a backup is not a read", "GET", jsonType, "", 405},
		{"form", "a browser sends forms to other sites", "POST", "application/x-www-form-urlencoded", "{}", 415},
		{"no type", "the type must be known", "POST", "", "{}", 415},
		{"large", "the body is bounded", "POST", jsonType, `{"recipients":["` + strings.Repeat("a", maxRequest) + `"]}`, 413},
		{"not JSON", "the body is not an object", "POST", jsonType, "[", 400},
		{"unknown field", "a misspelt field would make a set that is not encrypted", "POST", jsonType, `{"recipient":["a"]}`, 400},
		{"two objects", "the body is one object", "POST", jsonType, `{}{}`, 400},
		{"bad recipient", "it is not a key", "POST", jsonType, `{"recipients":["age1"]}`, 400},
		{"many", "each recipient costs time", "POST", jsonType, `{"recipients":["` + strings.Repeat(`a","`, maxRecipients) + `a"]}`, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), tc.method, "/", strings.NewReader(tc.body))
			r.Header.Set("Content-Type", tc.contentType)
			w := httptest.NewRecorder()
			m.Handler().ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("%s: status %d, want %d: %.200s", tc.reason, w.Code, tc.want, w.Body)
			}
		})
	}
}

// serve starts an HTTP/2 server with the handler.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestReceive_WritesVerifiedSet(t *testing.T) {
	id := newIdentity(t)
	m, _ := newMaker(t)
	s := serve(t, m.Handler())
	for _, recipients := range [][]string{nil, {id.Recipient().String()}} {
		dir := t.TempDir()
		got, err := Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Recipients: recipients, Out: dir})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(got.File)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() != got.Bytes || got.PublicKey != m.PublicKey().String() {
			t.Errorf("%+v: mode %v, %d bytes, %v", got, info.Mode(), info.Size(), err)
		}
		if _, encrypted, ok := parseFileName(filepath.Base(got.File)); !ok || encrypted != (recipients != nil) || encrypted != got.Encrypted {
			t.Errorf("the name is %s", got.File)
		}
		h, err := ReadHeader(got.File, []age.Identity{id})
		if err != nil || !m.PublicKey().IsSignerOf(h.Signature) {
			t.Errorf("the set is not verified: %v", err)
		}
		_, err = Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Recipients: recipients, Out: got.File})
		wantID(t, err, string(backup.Exists))
		_, err = Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Recipients: recipients, Out: dir})
		wantID(t, err, string(backup.Exists))
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("files %v, %v", left, err)
		}
	}
}

// shortWriter ends a response early, as a server that is killed or lacks a disk.
type shortWriter struct {
	http.ResponseWriter
	left int
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("the connection is closed")
	}
	return w.ResponseWriter.Write(p)
}

func TestReceive_RefusesBadResponses(t *testing.T) {
	id := newIdentity(t)
	m, _ := newMaker(t)
	short := func(w http.ResponseWriter, r *http.Request) { m.Handler().ServeHTTP(&shortWriter{w, 5000}, r) }
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "reason", status) }
	}
	for _, tc := range []struct {
		name, reason string
		handler      http.HandlerFunc
		recipients   []string
		want         string
	}{
		{"cut off", "the trailers are missing", short, nil, idIncomplete},
		{"cut off, encrypted", "the receiver cannot read the set", short, []string{id.Recipient().String()}, idIncomplete},
		{"empty", "another program listens there", func(http.ResponseWriter, *http.Request) {}, nil, idIncomplete},
		{"busy", "one backup runs at a time", answer(409), nil, idRunning},
		{"full", "the disk of the server is full", answer(507), nil, idNoRoom},
		{"forbidden", "the caller lacks the permission", answer(403), nil, idBadRequest},
		{"bad recipient", "it is refused before the request", answer(500), []string{"age1"}, idBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, dir := serve(t, tc.handler), t.TempDir()
			_, err := Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Recipients: tc.recipients, Out: filepath.Join(dir, "set.tar")})
			if wantID(t, err, tc.want); t.Failed() {
				t.Log(tc.reason)
			}
			requireEmpty(t, dir)
		})
	}
}

func TestHandler_RefusesSecondBackup(t *testing.T) {
	m, _ := newMaker(t)
	begun, end := make(chan struct{}), make(chan struct{})
	m.o.Snapshots = snapshots{content: database(), before: func() error {
		close(begun)
		<-end
		return nil
	}}
	s := serve(t, m.Handler())
	dir, done := t.TempDir(), make(chan error, 1)
	go func() {
		_, err := Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Out: dir})
		done <- err
	}()
	<-begun
	_, err := Receive(t.Context(), Call{Client: s.Client(), URL: s.URL, Out: dir})
	wantID(t, err, idRunning)
	close(end)
	if err := <-done; err != nil {
		t.Errorf("the first backup: %v", err)
	}
}

func TestHandler_EndsSnapshotWhenClientDisconnects(t *testing.T) {
	m, _ := newMaker(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	m.o.Snapshots = waiting{begun, ended}
	s := serve(t, m.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Receive(ctx, Call{Client: s.Client(), URL: s.URL, Out: t.TempDir()})
		done <- err
	}()
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the snapshot ended with %v", err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
}

// waiting is a snapshot that lasts until its context ends.
type waiting struct {
	begun chan struct{}
	ended chan error
}

func (w waiting) Snapshot(ctx context.Context, _ io.Writer) (SnapshotInfo, error) {
	close(w.begun)
	<-ctx.Done()
	w.ended <- ctx.Err()
	return SnapshotInfo{}, ctx.Err()
}

func TestHandler_ReportsFailureBeforeFirstByte(t *testing.T) {
	m, _ := newMaker(t)
	m.o.Snapshots = snapshots{before: func() error { return errors.New("etcd has no leader") }}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if w.Code != 500 || !strings.Contains(w.Body.String(), "etcd has no leader") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if !m.tryAcquire() {
		t.Error("the failed set holds up other backups")
	}
}
