// Package certificates makes and renews the certificates of a server: its CA, its serving
// certificate, and the client certificate and kubeconfig of its administrator.
package certificates

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/server/privatefile"
)

// The names of the files.
const (
	caName         = "ca"
	servingName    = "server"
	adminName      = "admin"
	certSuffix     = ".crt"
	keySuffix      = ".key"
	kubeconfigFile = "admin.kubeconfig"
)

// clusterName is the name of the cluster in the admin kubeconfig.
const clusterName = "slipway"

// defaultCALifetime is the default lifetime of the CA.
const defaultCALifetime = 10 * 365 * 24 * time.Hour

// Lifetimes holds the lifetimes of new certificates. Zero selects the default: ten years for
// the CA, 90 days for the others. A certificate is never valid for longer than its CA.
type Lifetimes struct{ CA, Serving, Admin time.Duration }

// shortest returns the shortest lifetime.
func (l Lifetimes) shortest() time.Duration { return min(l.CA, l.Serving, l.Admin) }

// Options configures the certificates of a server.
type Options struct {
	// Dir is the directory of the files.
	Dir string
	// Fresh allows Open to make a CA. The caller sets it only while the server has no data:
	// with a new CA, all kubeconfigs of users are invalid.
	Fresh bool
	// Names holds the DNS names and IP addresses of the serving certificate. It always also
	// has localhost, 127.0.0.1 and ::1.
	Names []string
	// Server is the URL in the admin kubeconfig. If it is empty, Open does not write this
	// file; SetServer writes it later.
	Server    string
	Lifetimes Lifetimes
	// Now returns the time; nil selects time.Now.
	Now func() time.Time
	// Log receives each renewal; nil discards them.
	Log *slog.Logger
}

// withDefaults returns the options with a value in each field.
func (o Options) withDefaults() Options {
	if o.Lifetimes.CA <= 0 {
		o.Lifetimes.CA = defaultCALifetime
	}
	if o.Lifetimes.Serving <= 0 {
		o.Lifetimes.Serving = DefaultLifetime
	}
	if o.Lifetimes.Admin <= 0 {
		o.Lifetimes.Admin = DefaultLifetime
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Certificates represents the certificates in one directory.
type Certificates struct {
	options Options
	names   subjectNames
	writer  privatefile.Writer

	mutex              sync.Mutex // for the fields below, and for the files
	server             string
	kubeconfigDue      bool // the admin kubeconfig may have other content
	ca, serving, admin pair
}

// A pair is a certificate with its key.
type pair struct {
	cert    *x509.Certificate
	text    []byte // of the certificate
	key     crypto.Signer
	keyText []byte
}

// Open checks the certificates in a directory. It makes the serving and the admin certificate
// if they are missing, and renews certificates that are due, have expired, or lack a name. It
// refuses a missing CA, unless o.Fresh is true, and damaged files, and does not overwrite them.
func Open(o Options) (*Certificates, error) { return openWith(o, privatefile.Writer{}) }

func openWith(o Options, w privatefile.Writer) (*Certificates, error) {
	c := &Certificates{options: o.withDefaults(), server: o.Server, kubeconfigDue: true, writer: w}
	var err error
	if c.names, err = parseNames(o.Names); err != nil {
		return nil, err
	}
	if o.Fresh {
		if err := os.Mkdir(o.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("creating the certificate directory: %w", err)
		}
	}
	// All files are read before the first one is written.
	if c.ca, err = c.readCA(); err != nil {
		return nil, err
	}
	for name, p := range map[string]*pair{servingName: &c.serving, adminName: &c.admin} {
		if *p, err = c.readLeaf(name); err != nil {
			return nil, err
		}
	}
	if err := c.renewDue(); err != nil {
		if !c.canServe() {
			return nil, err
		}
		c.logFailure(err) // Run tries again
	}
	return c, nil
}

// CAFile returns the path of the CA certificate.
func (c *Certificates) CAFile() string { return c.path(caName + certSuffix) }

// CAKeyFile returns the path of the CA's key.
func (c *Certificates) CAKeyFile() string { return c.path(caName + keySuffix) }

// ServingCertFile returns the path of the serving certificate.
func (c *Certificates) ServingCertFile() string { return c.path(servingName + certSuffix) }

// ServingKeyFile returns the path of the serving certificate's key.
func (c *Certificates) ServingKeyFile() string { return c.path(servingName + keySuffix) }

// AdminCertFile returns the path of the administrator's client certificate.
func (c *Certificates) AdminCertFile() string { return c.path(adminName + certSuffix) }

// AdminKeyFile returns the path of the key of the administrator's client certificate.
func (c *Certificates) AdminKeyFile() string { return c.path(adminName + keySuffix) }

// AdminKubeconfig returns the path of the administrator's kubeconfig.
func (c *Certificates) AdminKubeconfig() string { return c.path(kubeconfigFile) }

func (c *Certificates) path(name string) string { return filepath.Join(c.options.Dir, name) }

// SetServer sets the URL in the admin kubeconfig, and writes the file if it changes.
func (c *Certificates) SetServer(url string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.server, c.kubeconfigDue = url, true
	return c.writeKubeconfig()
}

// NextRenewal returns the time of the next renewal.
func (c *Certificates) NextRenewal() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	next := renewalTime(c.ca.cert, c.options.Lifetimes.CA)
	for _, t := range []time.Time{
		renewalTime(c.serving.cert, c.options.Lifetimes.Serving), renewalTime(c.admin.cert, c.options.Lifetimes.Admin),
	} {
		if t.Before(next) {
			next = t
		}
	}
	return next
}

// renewDue renews all certificates that are due, and writes the admin kubeconfig if its
// content has changed. If one renewal fails, the others are still tried.
func (c *Certificates) renewDue() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.options.Now()
	errs := []error{c.renewCA(now)}
	if c.ca.cert != nil {
		errs = append(errs,
			c.renewLeaf(&c.serving, servingName, c.options.Lifetimes.Serving, c.servingTemplate(), now),
			c.renewLeaf(&c.admin, adminName, c.options.Lifetimes.Admin, adminTemplate(), now))
	}
	if c.admin.cert != nil {
		errs = append(errs, c.writeKubeconfig())
	}
	return errors.Join(errs...)
}

// canServe reports whether all certificates are valid now. If so, the server can start even if
// a renewal fails, for example because the disk is full.
func (c *Certificates) canServe() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.options.Now()
	for _, p := range []pair{c.ca, c.serving, c.admin} {
		if p.cert == nil || now.Before(p.cert.NotBefore) || !now.Before(p.cert.NotAfter) {
			return false
		}
	}
	return true
}

// writeKubeconfig writes the admin kubeconfig, unless the file has the same content. A change
// by the administrator is kept until the next renewal or start.
func (c *Certificates) writeKubeconfig() error {
	if !c.kubeconfigDue || c.server == "" {
		return nil
	}
	text, err := kubeconfig.Admin{
		Cluster: clusterName, Server: c.server, CA: c.ca.text, Certificate: c.admin.text, Key: c.admin.keyText,
	}.Bytes()
	if err != nil {
		return err
	}
	old, err := privatefile.Read(c.AdminKubeconfig(), privatefile.Secret)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the admin kubeconfig: %w", err)
	}
	if bytes.Equal(old, text) {
		c.kubeconfigDue = false
		return nil
	}
	if err := c.writer.Replace(c.AdminKubeconfig(), text); err != nil {
		return fmt.Errorf("writing the admin kubeconfig: %w", err)
	}
	c.kubeconfigDue = false
	c.options.Log.Info("Wrote the admin kubeconfig", "file", c.AdminKubeconfig())
	return nil
}
