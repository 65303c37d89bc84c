package certificates

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/server/privatefile"
)

const serverURL = "https://127.0.0.1:7443"

var startTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func optionsAt(dir string, now time.Time) Options {
	return Options{Dir: dir, Server: serverURL, Now: func() time.Time { return now }}
}

// makeAt makes all certificates at a time in a new directory.
func makeAt(t *testing.T, now time.Time) (*Certificates, Options) {
	t.Helper()
	o := optionsAt(filepath.Join(t.TempDir(), "pki"), now)
	o.Fresh = true
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Fresh = false
	return c, o
}

// idOf returns the id of a refusal; the text of any other error.
func idOf(err error) string {
	var list diag.List
	switch {
	case err == nil:
		return ""
	case errors.As(err, &list):
		return list[0].ID
	}
	return err.Error()
}

// readAll returns the content of all files in a directory.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

// changedFiles returns the names of files that were created, changed or removed.
func changedFiles(before, after map[string]string) []string {
	out := []string{}
	for name, text := range after {
		if before[name] != text {
			out = append(out, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// checkUsable fails if a client with the CA or the kubeconfig in ca could not use the server.
func checkUsable(t *testing.T, dir, ca string, now time.Time) {
	t.Helper()
	files := readAll(t, dir)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		t.Fatal("the CA has no certificate")
	}
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "admin": x509.ExtKeyUsageClientAuth} {
		p, problem := parsePair([]byte(files[name+".crt"]), []byte(files[name+".key"]))
		if problem != "" {
			t.Errorf("%s: %s", name, problem)
			continue
		}
		o := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := p.cert.Verify(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	admin, err := kubeconfig.ParseAdmin([]byte(files["admin.kubeconfig"]))
	if err != nil {
		t.Fatal(err)
	}
	want := kubeconfig.Admin{
		Cluster: "slipway", Server: serverURL, CA: []byte(files["ca.crt"]),
		Certificate: []byte(files["admin.crt"]), Key: []byte(files["admin.key"]),
	}
	if d := cmp.Diff(want, admin); d != "" {
		t.Errorf("the admin kubeconfig (-want +got):\n%s", d)
	}
}

func TestOpen_MakesPrivateFilesOnce(t *testing.T) {
	c, o := makeAt(t, startTime)
	first := readAll(t, o.Dir)
	modes := map[string]fs.FileMode{}
	for name := range first {
		info, err := os.Stat(c.path(name))
		if err != nil {
			t.Fatal(err)
		}
		modes[name] = info.Mode()
	}
	want := map[string]fs.FileMode{}
	for _, path := range []string{
		c.CAFile(), c.CAKeyFile(), c.ServingCertFile(), c.ServingKeyFile(), c.AdminCertFile(), c.AdminKeyFile(), c.AdminKubeconfig(),
	} {
		want[filepath.Base(path)] = 0o600
	}
	if d := cmp.Diff(want, modes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	checkUsable(t, o.Dir, first["ca.crt"], startTime)
	if _, err := Open(o); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, readAll(t, o.Dir)); d != "" {
		t.Errorf("opening again changed files (-want +got):\n%s", d)
	}
}

func TestOpen_IssuesWantedSubjectsAndValidity(t *testing.T) {
	o := optionsAt(filepath.Join(t.TempDir(), "pki"), startTime)
	o.Fresh, o.Names = true, []string{"Slipway.example.com", "*.example.com", "192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1", "localhost"}
	if _, err := Open(o); err != nil {
		t.Fatal(err)
	}
	type shape struct {
		Subject    string
		CA         bool
		DNS        []string
		IPs        []string
		Begin, End time.Time
	}
	got := map[string]shape{}
	for name, text := range readAll(t, o.Dir) {
		if !strings.HasSuffix(name, ".crt") {
			continue
		}
		cert, err := pki.ParseCertificate([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := shape{Subject: cert.Subject.String(), CA: cert.IsCA, DNS: cert.DNSNames, Begin: cert.NotBefore, End: cert.NotAfter}
		for _, ip := range cert.IPAddresses {
			s.IPs = append(s.IPs, ip.String())
		}
		got[name] = s
	}
	begin, day := startTime.Add(-5*time.Minute), 24*time.Hour
	want := map[string]shape{
		"ca.crt":    {Subject: "CN=slipway-server-ca", CA: true, Begin: begin, End: startTime.Add(3650 * day)},
		"admin.crt": {Subject: "CN=slipway:admin,O=system:masters", Begin: begin, End: startTime.Add(90 * day)},
		"server.crt": {
			Subject: "CN=slipway-server", DNS: []string{"*.example.com", "localhost", "slipway.example.com"},
			IPs: []string{"127.0.0.1", "192.0.2.7", "2001:db8::1", "::1"}, Begin: begin, End: startTime.Add(90 * day),
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestOpen_RenewsDueCertificates opens certificates at a later time, or with other options.
func TestOpen_RenewsDueCertificates(t *testing.T) {
	const day = 24 * time.Hour
	serving := []string{"server.crt", "server.key"}
	admin := []string{"admin.crt", "admin.key", "admin.kubeconfig"}
	leaves := slices.Sorted(slices.Values(slices.Concat(serving, admin)))
	all := slices.Sorted(slices.Values(slices.Concat(leaves, []string{"ca.crt"})))
	remove := func(names ...string) func(t *testing.T, o *Options) {
		return func(t *testing.T, o *Options) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(o.Dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, tt := range []struct {
		name, reason string
		after        time.Duration
		change       func(t *testing.T, o *Options)
		want         []string // changed files
		logged       string
	}{
		{"new", "nothing is due", time.Hour, nil, []string{}, ""},
		{"just before", "two thirds are 60 days", 60*day - time.Second, nil, []string{}, ""},
		{"due", "two thirds are 60 days", 60 * day, nil, leaves, "two thirds of its lifetime have passed"},
		{"expired", "the server was off for a year", 365 * day, nil, leaves, "it has expired"},
		{"CA due", "two thirds of ten years", 2500 * day, nil, all, "two thirds of its lifetime have passed"},
		{"CA expired", "the server was off for 20 years", 7300 * day, nil, all, "it has expired"},
		{"clock set back", "clients with the correct time reject them", -day, nil, all, "it is not valid yet"},
		{"new name", "clients use it", time.Hour, func(_ *testing.T, o *Options) {
			o.Names = []string{"example.com"}
		}, serving, "it lacks the name example.com"},
		{"known names", "they are always in it", time.Hour, func(_ *testing.T, o *Options) {
			o.Names = []string{"LOCALHOST", "127.0.0.1"}
		}, []string{}, ""},
		{"shorter lifetime", "it counts from the issue", time.Hour, func(_ *testing.T, o *Options) {
			o.Lifetimes.Serving = time.Hour
		}, serving, "two thirds"},
		{"no serving certificate", "nothing is lost", time.Hour, remove("server.crt", "server.key"), serving, "it is missing"},
		{"no serving key", "nothing is lost", time.Hour, remove("server.key"), serving, "it is missing"},
		{"no admin certificate", "nothing is lost", time.Hour, remove("admin.crt"), admin, "it is missing"},
		{"no kubeconfig", "its parts exist", time.Hour, remove("admin.kubeconfig"), []string{}, "Wrote the admin kubeconfig"},
		{"other URL", "the server listens elsewhere", time.Hour, func(_ *testing.T, o *Options) {
			o.Server = "https://192.0.2.1:7443"
		}, []string{"admin.kubeconfig"}, "Wrote the admin kubeconfig"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := makeAt(t, startTime)
			before := readAll(t, o.Dir)
			now := startTime.Add(tt.after)
			o.Now = func() time.Time { return now }
			var log strings.Builder
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			if tt.change != nil {
				tt.change(t, &o)
			}
			c, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, changedFiles(before, readAll(t, o.Dir))); d != "" {
				t.Errorf("%s: changed files (-want +got):\n%s", tt.reason, d)
			}
			if !strings.Contains(log.String(), tt.logged) || (tt.logged == "") != (log.Len() == 0) {
				t.Errorf("the log is %q", log.String())
			}
			if o.Server == serverURL {
				checkUsable(t, o.Dir, readAll(t, o.Dir)["ca.crt"], now)
			}
			if !c.NextRenewal().After(now) {
				t.Errorf("the next renewal is at %s, now is %s", c.NextRenewal(), now)
			}
			if ca := before["ca.crt"]; tt.name == "CA due" { // an old kubeconfig
				checkUsable(t, o.Dir, ca, now)
			}
		})
	}
}

// TestOpen_RefusesWithoutChange: no file is overwritten that an administrator may need.
func TestOpen_RefusesWithoutChange(t *testing.T) {
	remove := func(names ...string) func(dir string) error {
		return func(dir string) (err error) {
			for _, name := range names {
				err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
			}
			return err
		}
	}
	replace := func(name, content string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) }
	}
	_, other := makeAt(t, startTime)
	foreign := readAll(t, other.Dir)
	for _, tt := range []struct {
		name, reason string
		fresh        bool
		change       func(dir string) error
		want         string
	}{
		{"no CA", "all kubeconfigs would be invalid", false, remove("ca.crt", "ca.key"), idMissingCA},
		{"no CA, fresh", "certificates of a lost CA exist", true, remove("ca.crt", "ca.key"), idMissingCA},
		{"no CA certificate", "it can be restored", false, remove("ca.crt"), idMissingCA},
		{"no CA key", "the CA cannot sign", false, remove("ca.key"), idMissingCA},
		{"no directory", "a disk may not be mounted", false, os.RemoveAll, idMissingCA},
		{"empty CA certificate", "a full disk", false, replace("ca.crt", ""), idDamagedCA},
		{"empty CA key", "a full disk", false, replace("ca.key", ""), idDamagedCA},
		{"other CA key", "the CA cannot sign", false, replace("ca.key", foreign["ca.key"]), idDamagedCA},
		{"not a CA", "the pair of the serving certificate", false, func(dir string) error {
			return errors.Join(replace("ca.crt", foreign["server.crt"])(dir), replace("ca.key", foreign["server.key"])(dir))
		}, idDamagedCA},
		{"damaged CA key, fresh", "it is not overwritten", true, func(dir string) error {
			return errors.Join(remove("ca.crt", "server.crt", "admin.crt")(dir), replace("ca.key", "x")(dir))
		}, idDamagedCA},
		{"other CA", "restored from another server", false, func(dir string) error {
			return errors.Join(replace("ca.crt", foreign["ca.crt"])(dir), replace("ca.key", foreign["ca.key"])(dir))
		}, idDamaged},
		{"empty serving certificate", "a full disk", false, replace("server.crt", ""), idDamaged},
		{"empty serving key", "a full disk", false, replace("server.key", ""), idDamaged},
		{"other serving key", "a mixed pair", false, replace("server.key", foreign["server.key"]), idDamaged},
		{"foreign admin certificate", "another CA has signed it", false, func(dir string) error {
			return errors.Join(replace("admin.crt", foreign["admin.crt"])(dir), replace("admin.key", foreign["admin.key"])(dir))
		}, idDamaged},
		{"readable key", "others may know it", false, func(dir string) error {
			return os.Chmod(filepath.Join(dir, "ca.key"), 0o644)
		}, "server-file-unsafe"},
		{"linked key", "it may be a file of another user", false, func(dir string) error {
			path := filepath.Join(dir, "admin.key")
			return errors.Join(os.Rename(path, path+".target"), os.Symlink(path+".target", path))
		}, "server-file-unsafe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := makeAt(t, startTime)
			if err := tt.change(o.Dir); err != nil {
				t.Fatal(err)
			}
			exists := true
			if _, err := os.Stat(o.Dir); err != nil {
				exists = false
			}
			before := map[string]string{}
			if exists {
				before = readAll(t, o.Dir)
			}
			o.Fresh = tt.fresh
			o.Now = func() time.Time { return startTime.AddDate(1, 0, 0) } // renewals are due
			_, err := Open(o)
			if d := cmp.Diff(tt.want, idOf(err)); d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tt.reason, err, d)
			}
			if exists {
				if d := cmp.Diff([]string{}, changedFiles(before, readAll(t, o.Dir))); d != "" {
					t.Errorf("changed files (-want +got):\n%s", d)
				}
			}
		})
	}
}

func TestOpen_RefusesInvalidNames(t *testing.T) {
	for _, name := range []string{
		"", "a b", "https://example.com", "[::1]", "fe80::1%eth0", "example.com:7443", "-a", "a.*.com", "bücher.example",
	} {
		o := optionsAt(filepath.Join(t.TempDir(), "pki"), startTime)
		o.Fresh, o.Names = true, []string{name}
		if _, err := Open(o); idOf(err) != idInvalidName {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the directory exists: %v", name, err)
		}
	}
}

func TestSetServer_WritesTheKubeconfigLater(t *testing.T) {
	o := optionsAt(filepath.Join(t.TempDir(), "pki"), startTime)
	o.Fresh, o.Server = true, ""
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.AdminKubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig exists: %v", err)
	}
	if err := c.SetServer(serverURL); err != nil {
		t.Fatal(err)
	}
	checkUsable(t, o.Dir, readAll(t, o.Dir)["ca.crt"], startTime)
	if err := c.SetServer("http://127.0.0.1"); err == nil {
		t.Error("accepted a URL without TLS")
	}
}

// errKilled ends a test function as a signal ends a server.
var errKilled = errors.New("killed")

// openUntil opens certificates and ends after a number of steps that reach the disk. It
// reports whether it was ended.
func openUntil(steps int, o Options) (killed bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			killed = r == any(errKilled)
		}
	}()
	_, err = openWith(o, privatefile.Writer{After: func(string) {
		if steps--; steps < 0 {
			panic(errKilled)
		}
	}})
	return false, err
}

// TestOpen_ContinuesAfterEveryKill ends the server after each step, at the first start and
// during a renewal of all certificates.
func TestOpen_ContinuesAfterEveryKill(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		prepare      func(t *testing.T) Options
		steps        int
	}{
		{"first start", "nothing exists", func(t *testing.T) Options {
			o := optionsAt(filepath.Join(t.TempDir(), "pki"), startTime)
			o.Fresh = true
			return o
		}, 14},
		{"renewal", "all certificates have expired", func(t *testing.T) Options {
			_, o := makeAt(t, startTime)
			o.Now = func() time.Time { return startTime.AddDate(20, 0, 0) }
			return o
		}, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for steps := 0; ; steps++ {
				o := tt.prepare(t)
				killed, err := openUntil(steps, o)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Open(o); err != nil {
					t.Fatalf("killed after %d steps: %v", steps, err)
				}
				checkUsable(t, o.Dir, readAll(t, o.Dir)["ca.crt"], o.Now())
				for name := range readAll(t, o.Dir) {
					if strings.HasPrefix(name, ".") {
						t.Errorf("killed after %d steps: %s remains", steps, name)
					}
				}
				if !killed {
					if steps != tt.steps {
						t.Errorf("%s: %d steps, want %d", tt.reason, steps, tt.steps)
					}
					return
				}
			}
		})
	}
}
