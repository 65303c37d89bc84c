package controlplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/server/certificates"
)

const (
	renewalClients = 50
	renewalPause   = 500 * time.Millisecond
)

// TestRobustRenewal_FailsNoRequest renews the serving certificate again and again while clients
// open new connections: no request fails.
func TestRobustRenewal_FailsNoRequest(t *testing.T) {
	c := startChild(t, filepath.Join(t.TempDir(), "data"), "", serverOptions{Serving: renewedLifetime})
	config, err := rest.TLSConfigFor(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	serials, requests := map[string]bool{}, 0
	config.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
		mu.Lock()
		defer mu.Unlock()
		serials[chains[0][0].SerialNumber.String()] = true
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), renewalTime)
	defer cancel()
	var clients sync.WaitGroup
	for i := range renewalClients {
		clients.Go(func() {
			pause(ctx, renewalPause*time.Duration(i)/renewalClients)
			for ctx.Err() == nil {
				err := readOnce(context.WithoutCancel(ctx), config, "https://"+c.address+"/api/v1/namespaces/default")
				mu.Lock()
				if requests++; err != nil {
					t.Errorf("request %d: %v", requests, err)
				}
				mu.Unlock()
				pause(ctx, renewalPause)
			}
		})
	}
	clients.Wait()
	t.Logf("%d requests on new connections, %d serving certificates in %s", requests, len(serials), renewalTime)
	if want := 1 + int(renewalTime/renewedLifetime); len(serials) < max(want, 2) {
		t.Errorf("only %d serving certificates were seen", len(serials))
	}
	c.stop(t)
}

// readOnce makes a request on a new connection.
func readOnce(ctx context.Context, config *tls.Config, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return err
}

// TestRobustExpired_IsRenewedAtStart starts a server whose serving certificate has expired.
func TestRobustExpired_IsRenewedAtStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	c := startChild(t, data, "", serverOptions{})
	c.stop(t)
	expireServing(t, data)
	path := filepath.Join(data, "pki", "server.crt")
	expired, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c = startChild(t, data, "", serverOptions{})
	if _, err := c.client(t).Discovery().ServerVersion(); err != nil {
		t.Errorf("a request after the renewal: %v", err)
	}
	renewed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(renewed) == string(expired) {
		t.Error("the expired certificate was not renewed")
	}
	c.stop(t)
}

// expireServing replaces the serving certificate of a stopped server with an expired one.
func expireServing(t *testing.T, data string) {
	t.Helper()
	for _, name := range []string{"server.crt", "server.key"} {
		if err := os.Remove(filepath.Join(data, "pki", name)); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	if _, err := certificates.Open(certificates.Options{
		Dir: filepath.Join(data, "pki"), Lifetimes: certificates.Lifetimes{Serving: 30 * time.Minute},
		Now: func() time.Time { return long },
	}); err != nil {
		t.Fatal(err)
	}
}
