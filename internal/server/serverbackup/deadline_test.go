package serverbackup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// silentServer is a server that sends nothing: no response, or after its headers no body.
type silentServer struct{ status int }

func (s silentServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: s.status, Body: io.NopCloser(silentBody{r.Context().Done()})}, nil
}

type silentBody struct{ done <-chan struct{} }

func (b silentBody) Read([]byte) (int, error) {
	<-b.done
	return 0, context.Canceled
}

func TestReceive_EndsWhenServerIsSilent(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		status       int
		text         string
		want         time.Duration
	}{
		{"no response", "the snapshot never ends", 0, "has not responded", headerTime},
		{"no body", "the server or the network has stopped", http.StatusOK, "has sent nothing", stall},
		{"no reason", "the text of the refusal never arrives", http.StatusConflict, idRunning, stall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, begin := t.TempDir(), time.Now()
				_, err := Receive(t.Context(), Call{
					Client: &http.Client{Transport: silentServer{tc.status}}, URL: "http://server.example.com", Out: dir,
				})
				if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error()+idOf(err), tc.text) {
					t.Errorf("%s: error %v", tc.reason, err)
				}
				if took := time.Since(begin); took != tc.want { // the clock of the bubble
					t.Errorf("the request ended after %s instead of %s", took, tc.want)
				}
				requireEmpty(t, dir)
			})
		})
	}
}

func TestBodyReader_RefusesLargeBody(t *testing.T) {
	for _, left := range []int64{9, 10} {
		b := &bodyReader{from: strings.NewReader("0123456789"), left: left, cancel: func(error) {}}
		switch _, err := io.Copy(io.Discard, b); {
		case left < 10:
			wantID(t, err, idIncomplete)
		case err != nil:
			t.Errorf("a body of the largest size: %v", err)
		}
	}
}

// slowClient accepts each write after some time, but not after the deadline of the write.
type slowClient struct {
	header   http.Header
	takes    time.Duration
	begun    chan struct{} // is closed at the first write
	writes   int
	deadline time.Time
}

func (c *slowClient) Header() http.Header { return c.header }
func (c *slowClient) WriteHeader(int)     {}

func (c *slowClient) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *slowClient) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		close(c.begun)
	}
	timer := time.NewTimer(min(c.takes, time.Until(c.deadline)))
	defer timer.Stop()
	<-timer.C
	if !time.Now().Before(c.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

// sendTo requests a set for a client. The result is closed when the handler has ended.
func sendTo(t *testing.T, m *Maker, c http.ResponseWriter) <-chan struct{} {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Handler().ServeHTTP(c, r)
	}()
	return done
}

func TestHandler_SlowClientsDoNotHoldUpBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, d := newMaker(t)
		m.o.Snapshots = snapshots{content: bytes.Repeat([]byte("etcd data "), 1<<18)}
		var clients []*slowClient
		var ends []<-chan struct{}
		for range maxSending {
			c := &slowClient{header: http.Header{}, takes: stall - time.Second, begun: make(chan struct{})}
			clients, ends = append(clients, c), append(ends, sendTo(t, m, c))
			<-c.begun
		}
		if _, err := m.Take(t.Context(), io.Discard, nil); err != nil {
			t.Errorf("a backup while others are sent: %v", err)
		}
		third := httptest.NewRecorder()
		<-sendTo(t, m, third)
		if third.Code != http.StatusConflict {
			t.Errorf("a backup in addition to %d that are sent: status %d", maxSending, third.Code)
		}
		for i, end := range ends {
			<-end
			if clients[i].header.Get(trailerSum) != "" {
				t.Error("a client without time for the set got all of it")
			}
		}
		if len(m.sending) > 0 || len(m.busy) > 0 {
			t.Errorf("%d sets are being sent, and %d made", len(m.sending), len(m.busy))
		}
		requireEmpty(t, d.Path("tmp"))
		fourth := httptest.NewRecorder()
		<-sendTo(t, m, fourth)
		if fourth.Code != http.StatusOK || fourth.Header().Get(trailerSum) == "" {
			t.Errorf("a backup after the others: status %d", fourth.Code)
		}
	})
}

func TestHandler_EndsSendingAfterLongestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMaker(t)
		m.o.Snapshots = snapshots{content: bytes.Repeat([]byte("etcd data "), 1<<18)}
		c := &slowClient{header: http.Header{}, takes: stall - time.Second, begun: make(chan struct{})}
		begin, done := time.Now(), sendTo(t, m, c)
		<-done
		if took := time.Since(begin); took != sendTime { // the clock of the bubble
			t.Errorf("a slow client had %s instead of %s", took, sendTime)
		}
	})
}
