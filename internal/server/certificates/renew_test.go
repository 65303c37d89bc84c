package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/server/privatefile"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// A logRecorder keeps the messages of a log.
type logRecorder struct {
	slog.Handler
	messages *[]string
}

func recordLog() (*slog.Logger, *[]string) {
	var messages []string
	return slog.New(logRecorder{slog.DiscardHandler, &messages}), &messages
}

func (r logRecorder) Enabled(context.Context, slog.Level) bool { return true }

func (r logRecorder) Handle(_ context.Context, record slog.Record) error {
	*r.messages = append(*r.messages, record.Message)
	return nil
}

// runFor opens certificates in a new directory and runs the renewal for a time of the bubble.
// during is called when the time has passed.
func runFor(t *testing.T, o Options, d time.Duration, during func(c *Certificates)) {
	t.Helper()
	o.Server, o.Fresh = serverURL, true
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "pki")
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-time.After(d)
	synctest.Wait()
	during(c)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func countOf(messages []string, message string) int {
	n := 0
	for _, m := range messages {
		if m == message {
			n++
		}
	}
	return n
}

func TestRun_RenewsAtTwoThirds(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name, reason string
		lifetimes    Lifetimes
		run          time.Duration
		want         int // certificates that were issued, with the three of the start
	}{
		{"default", "nothing is due", Lifetimes{}, 59 * day, 3},
		{"due", "two thirds of 90 days", Lifetimes{}, 61 * day, 5},
		{"15 seconds", "every ten seconds, for one minute", Lifetimes{Serving: 15 * time.Second}, 65 * time.Second, 3 + 6},
		{
			"all short", "the CA is renewed with the others",
			Lifetimes{CA: 30 * time.Second, Serving: 15 * time.Second, Admin: 30 * time.Second},
			25 * time.Second, 3 + 1 + 2 + 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, messages := recordLog()
				runFor(t, Options{Lifetimes: tt.lifetimes, Log: log}, tt.run, func(c *Certificates) {
					if n := countOf(*messages, "Issued a certificate"); n != tt.want {
						t.Errorf("%s: %d certificates, want %d: %v", tt.reason, n, tt.want, *messages)
					}
					checkUsable(t, c.options.Dir, readAll(t, c.options.Dir)["ca.crt"], time.Now())
					if !c.NextRenewal().After(time.Now().Add(-time.Second)) {
						t.Errorf("the next renewal was at %s", c.NextRenewal())
					}
				})
			})
		})
	}
}

// TestRun_NoticesClockThatIsSet: the timers of a process do not follow the wall clock.
func TestRun_NoticesClockThatIsSet(t *testing.T) {
	for _, tt := range []struct {
		name string
		jump time.Duration
		want int
	}{
		{"ahead", 80 * 24 * time.Hour, 5},
		{"back", -24 * time.Hour, 6}, // the CA is not valid yet either
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, messages := recordLog()
				set := time.Now().Add(time.Hour)
				now := func() time.Time {
					if time.Now().Before(set) {
						return time.Now()
					}
					return time.Now().Add(tt.jump)
				}
				runFor(t, Options{Log: log, Now: now}, 2*time.Hour, func(c *Certificates) {
					if n := countOf(*messages, "Issued a certificate"); n != tt.want {
						t.Errorf("%d certificates, want %d", n, tt.want)
					}
					checkUsable(t, c.options.Dir, readAll(t, c.options.Dir)["ca.crt"], now())
				})
			})
		})
	}
}

func TestRun_KeepsChangedKubeconfigUntilRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runFor(t, Options{}, time.Hour, func(c *Certificates) {
			if err := os.WriteFile(c.AdminKubeconfig(), []byte("# changed\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour)
			if text := readAll(t, c.options.Dir)["admin.kubeconfig"]; text != "# changed\n" {
				t.Error("the change was lost without a renewal")
			}
			<-time.After(60 * 24 * time.Hour)
			synctest.Wait()
			checkUsable(t, c.options.Dir, readAll(t, c.options.Dir)["ca.crt"], time.Now())
		})
	})
}

// TestRun_KeepsFilesOnFullDisk: a renewal changes nothing if there is no room, and succeeds
// when there is room again.
func TestRun_KeepsFilesOnFullDisk(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "128k")
		fill := filepath.Join(dir, "fill")
		synctest.Test(t, func(t *testing.T) {
			log, messages := recordLog()
			o := Options{Dir: filepath.Join(dir, "pki"), Log: log}
			runFor(t, o, time.Hour, func(c *Certificates) {
				before := readAll(t, o.Dir)
				if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); err == nil {
					t.Fatal("the disk is not full")
				}
				<-time.After(60*24*time.Hour + 10*time.Minute)
				synctest.Wait()
				if d := cmp.Diff(before, readAll(t, o.Dir)); d != "" {
					t.Errorf("files changed (-want +got):\n%s", d)
				}
				if n := countOf(*messages, "Cannot renew certificates"); n < 5 || n > 100 {
					t.Errorf("%d failures were logged", n)
				}
				reopened, err := Open(Options{Dir: o.Dir, Server: serverURL})
				if err != nil {
					t.Fatalf("a server with valid certificates cannot start: %v", err)
				}
				if d := cmp.Diff(c.NextRenewal(), reopened.NextRenewal()); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if err := os.Remove(fill); err != nil {
					t.Fatal(err)
				}
				<-time.After(2 * time.Minute)
				synctest.Wait()
				want := []string{"admin.crt", "admin.key", "admin.kubeconfig", "server.crt", "server.key"}
				if d := cmp.Diff(want, changedFiles(before, readAll(t, o.Dir))); d != "" {
					t.Errorf("changed files (-want +got):\n%s", d)
				}
				checkUsable(t, o.Dir, readAll(t, o.Dir)["ca.crt"], time.Now())
			})
		})
	})
}

// TestWritePair_NeverShowsMixedPair reads the pair as an API server does, after each step of
// a renewal. A pair that does not match is not used, and the read after the last step finds
// the new pair.
func TestWritePair_NeverShowsMixedPair(t *testing.T) {
	c, _ := makeAt(t, startTime)
	old := readAll(t, c.options.Dir)["server.crt"]
	var got []string
	c.writer = privatefile.Writer{After: func(step string) {
		files := readAll(t, c.options.Dir)
		_, err := tls.X509KeyPair([]byte(files["server.crt"]), []byte(files["server.key"]))
		switch {
		case err != nil:
			got = append(got, "refused")
		case files["server.crt"] == old:
			got = append(got, "old")
		default:
			got = append(got, "new")
		}
	}}
	c.options.Now = func() time.Time { return startTime.AddDate(0, 0, 61) }
	c.admin.cert.NotBefore = c.options.Now() // it is not due
	if err := c.renewDue(); err != nil {
		t.Fatal(err)
	}
	// Two files are staged, the key is renamed, then the certificate.
	if d := cmp.Diff([]string{"old", "old", "refused", "new"}, got[:4]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFinishPair_UsesOnlyMatchingCertificate(t *testing.T) {
	c, o := makeAt(t, startTime)
	before := readAll(t, o.Dir)
	_, other := makeAt(t, startTime)
	for _, tt := range []struct {
		name, reason string
		staged       []byte
	}{
		{"other pair", "its key was not renamed", []byte(readAll(t, other.Dir)["server.crt"])},
		{"half", "the server was killed while it wrote", []byte(before["server.crt"])[:100]},
		{"empty", "a power failure", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(privatefile.StagedPath(c.ServingCertFile()), tt.staged, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(o); err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if d := cmp.Diff(before, readAll(t, o.Dir)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestRenewCA_KeepsKeyAndSubject(t *testing.T) {
	_, o := makeAt(t, startTime)
	before := readAll(t, o.Dir)
	o.Now = func() time.Time { return startTime.AddDate(8, 0, 0) }
	if _, err := Open(o); err != nil {
		t.Fatal(err)
	}
	after := readAll(t, o.Dir)
	old, err := pki.ParseCertificate([]byte(before["ca.crt"]))
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := pki.ParseCertificate([]byte(after["ca.crt"]))
	if err != nil {
		t.Fatal(err)
	}
	if before["ca.key"] != after["ca.key"] || before["ca.crt"] == after["ca.crt"] {
		t.Error("the key has changed, or the certificate has not changed")
	}
	if !bytes.Equal(old.RawSubject, renewed.RawSubject) || !bytes.Equal(old.SubjectKeyId, renewed.SubjectKeyId) {
		t.Errorf("the CA is %s %x, and was %s %x", renewed.Subject, renewed.SubjectKeyId, old.Subject, old.SubjectKeyId)
	}
}

func TestRenewLeaf_RefusesExpiredCA(t *testing.T) {
	c, _ := makeAt(t, startTime)
	err := c.renewLeaf(&c.admin, adminName, DefaultLifetime, adminTemplate(), startTime.AddDate(20, 0, 0))
	if !errors.Is(err, errExpiredCA) {
		t.Errorf("got %v", err)
	}
}
