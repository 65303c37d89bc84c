package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func alwaysAnswers(context.Context, string) error { return nil }

// servers holds API servers, of which some are dead.
type servers struct {
	mu   sync.Mutex
	dead []string
	hang bool // what is dead does not refuse
}

func (s *servers) askServer(ctx context.Context, server string) error {
	s.mu.Lock()
	dead, hang := slices.Contains(s.dead, server), s.hang
	s.mu.Unlock()
	if dead && hang {
		<-ctx.Done()
	}
	if dead {
		return errors.New("no answer")
	}
	return nil
}

func (s *servers) killServers(dead ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = dead
}

// A silent API server is removed long before its peers notice, and returns as soon as it
// responds. If no server responds, all are kept.
func TestProbe_RemovesSilentServersUnlessAllAreSilent(t *testing.T) {
	const noticed = (silences+1)*max(probeEvery, probeTime) + time.Second
	for name, hang := range map[string]bool{"refused": false, "switched off": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1", "10.0.0.2"),
					sourceSlice("kubernetes-6", ipv6, 6443, "fd00::1"))
				s := &servers{hang: hang}
				defer startInstanceWith(t, client, "a", s.askServer)()
				want := func(when string, four ...string) {
					t.Helper()
					got := targetContents(t, client)
					for name := range got { // the port is there once
						got[name] = got[name][:len(got[name])-2]
					}
					if d := cmp.Diff(map[string][]string{"api-ipv4": four, "api-ipv6": {"fd00::1"}}, got); d != "" {
						t.Errorf("%s (-want +got):\n%s", when, d)
					}
				}
				time.Sleep(settle + probeEvery/2) // between two rounds
				want("at first", "10.0.0.1", "10.0.0.2")
				s.killServers("10.0.0.1:6443")
				time.Sleep(probeEvery) // once is not enough
				want("when one has not answered once", "10.0.0.1", "10.0.0.2")
				time.Sleep(noticed)
				want("when one is dead", "10.0.0.2")
				s.killServers("10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443")
				time.Sleep(noticed)
				want("when all are dead", "10.0.0.1", "10.0.0.2")
				s.killServers()
				time.Sleep(noticed)
				want("when all are back", "10.0.0.1", "10.0.0.2")
			})
		})
	}
}

// A new leader does not use a dead server that it has not seen before, such as the one on
// the machine of the previous leader.
func TestProbe_RemovesNewSilentServerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1", "10.0.0.2"))
		s := &servers{dead: []string{"10.0.0.1:6443"}, hang: true}
		defer startInstanceWith(t, client, "a", s.askServer)()
		time.Sleep(probeTime + time.Second)
		if got := targetContents(t, client)["api-ipv4"]; len(got) == 0 || got[0] != "10.0.0.2" {
			t.Errorf("the first slice has %v", got)
		}
		// A server that registers later counts until its probes fail.
		s.killServers("10.0.0.1:6443", "10.0.0.3:6443")
		if _, err := slicesOf(client, "default").Update(t.Context(),
			sourceSlice("kubernetes", ipv4, 6443, "10.0.0.2", "10.0.0.3"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle)
		if got := targetContents(t, client)["api-ipv4"]; got[0] != "10.0.0.2" || len(got) != 3 {
			t.Errorf("after a new silent server, the slice has %v", got)
		}
	})
}

func TestReadyzProbe_AcceptsForbiddenAsAnswer(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s with %q", r.URL, r.Header)
		}
		w.WriteHeader(status)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	address := strings.TrimPrefix(s.URL, "https://")
	for code, answers := range map[int]bool{200: true, 401: true, 403: true, 500: false, 503: false} {
		status = code
		if err := readyzProbe(&tls.Config{RootCAs: trusted})(t.Context(), address); (err == nil) != answers {
			t.Errorf("%d: %v", code, err)
		}
	}
	status = http.StatusOK
	if err := readyzProbe(&tls.Config{})(t.Context(), address); err == nil {
		t.Error("a server with another CA was accepted")
	}
	s.Close()
	if err := readyzProbe(&tls.Config{RootCAs: trusted})(t.Context(), address); err == nil {
		t.Error("a closed port accepts connections")
	}
}
