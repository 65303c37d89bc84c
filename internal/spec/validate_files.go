package spec

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// maxKeyBytes limits a key file; the largest real ones have about 13 KB.
const maxKeyBytes = 64 << 10

// Paths resolves the file names in a cluster file.
type Paths struct {
	// Dir is the base of relative names: the directory of the cluster file.
	Dir string
	// Home is the value of "~"; "" asks the operating system.
	Home string
	// Now is the time at which certificates must be valid; zero is the current time.
	Now time.Time
}

func (p Paths) now() time.Time {
	if p.Now.IsZero() {
		return time.Now()
	}
	return p.Now
}

// Resolve returns name as a path that can be opened: "~/" is the home directory of the
// user, and a relative name begins in Dir. "" is returned unchanged.
func (p Paths) Resolve(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') {
		home := p.Home
		if home == "" {
			if known, err := os.UserHomeDir(); err == nil {
				home = known
			}
		}
		return filepath.Join(home, rest)
	}
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Dir, name)
}

// MakePathsAbsolute makes every file name in c an absolute path, so that c can be used from any
// working directory. A bundle is a path if it begins with "/", "./", "../" or "~", else a
// reference to a registry.
func MakePathsAbsolute(c *v1alpha1.Cluster, p Paths) error {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return fmt.Errorf("finding the working directory: %w", err)
	}
	p.Dir = dir
	for _, name := range fileFields(c) {
		*name.value = p.Resolve(*name.value)
	}
	if IsBundlePath(c.Spec.Bundle) {
		c.Spec.Bundle = p.Resolve(c.Spec.Bundle)
	}
	return nil
}

// MakePathsRelative makes every file name below dir a name relative to dir, so that c can be used
// when its files are in another directory.
func MakePathsRelative(c *v1alpha1.Cluster, dir string) {
	for _, name := range fileFields(c) {
		if rest, ok := strings.CutPrefix(*name.value, dir+string(filepath.Separator)); ok && dir != "" {
			*name.value = rest
		}
	}
}

// IsBundlePath reports whether a bundle is a file or directory, and not a reference to a
// registry.
func IsBundlePath(bundle string) bool {
	for _, prefix := range []string{"/", "./", "../", "~"} {
		if strings.HasPrefix(bundle, prefix) {
			return true
		}
	}
	return bundle == "." || bundle == ".."
}

// A fileField is a field of a cluster that names a file.
type fileField struct {
	path  string
	value *string
}

func fileFields(c *v1alpha1.Cluster) []fileField {
	var out []fileField
	add := func(path string, value *string) { out = append(out, fileField{path, value}) }
	source := func(path string, s *v1alpha1.SecretSource) {
		if s != nil {
			add(path+".file", &s.File)
		}
	}
	eachSSH(c, func(path string, s *v1alpha1.SSH) {
		add(path+".privateKeyFile", &s.PrivateKeyFile)
		source(path+".passphraseFrom", s.PassphraseFrom)
		source(path+".passwordFrom", s.PasswordFrom)
		source(path+".sudoPasswordFrom", s.SudoPasswordFrom)
		if b := s.Bastion; b != nil {
			add(path+".bastion.privateKeyFile", &b.PrivateKeyFile)
			source(path+".bastion.passphraseFrom", b.PassphraseFrom)
			source(path+".bastion.passwordFrom", b.PasswordFrom)
		}
	})
	if e := c.Spec.Etcd.External; e != nil {
		add(pathCAFile, &e.CAFile)
		add(pathCertFile, &e.CertFile)
		add(pathKeyFile, &e.KeyFile)
	}
	eachCopy(c, func(path string, to *v1alpha1.EtcdCopy) {
		if to.SSH != nil {
			source(path+".ssh.privateKeyFrom", to.SSH.PrivateKeyFrom)
		}
		if b := to.S3; b != nil {
			source(path+".s3.accessKeyFrom", b.AccessKeyFrom)
			source(path+".s3.secretKeyFrom", b.SecretKeyFrom)
			add(path+".s3.caFile", &b.CAFile)
		}
	})
	for i := range c.Spec.Registry.Auths {
		a, path := &c.Spec.Registry.Auths[i], yamlfile.IndexPath("spec.registry.auths", i)
		source(path+".passwordFrom", a.PasswordFrom)
		add(path+".caFile", &a.CAFile)
	}
	if r := c.Spec.Registry.Private; r != nil {
		source(pathPrivate+".passwordFrom", r.PasswordFrom)
		add(pathPrivate+".certFile", &r.CertFile)
		add(pathPrivate+".keyFile", &r.KeyFile)
		add(pathPrivate+".caFile", &r.CAFile)
	}
	if a := c.Spec.Kubernetes.Audit; a != nil {
		add(pathAuditPolicy, &a.PolicyFile)
	}
	for i := range c.Spec.Hooks {
		h, path := &c.Spec.Hooks[i], yamlfile.IndexPath("spec.hooks", i)
		add(path+".script", &h.Script)
		for m := range h.Materials {
			add(yamlfile.IndexPath(path+".materials", m), &h.Materials[m])
		}
	}
	addonFiles(c, add)
	return out
}

func addonFiles(c *v1alpha1.Cluster, add func(path string, value *string)) {
	for i := range c.Spec.Addons {
		a, path := &c.Spec.Addons[i], yamlfile.IndexPath("spec.addons", i)
		for m := range a.Manifests {
			if !IsURL(a.Manifests[m]) {
				add(yamlfile.IndexPath(path+".manifests", m), &a.Manifests[m])
			}
		}
		if a.Chart != nil {
			add(path+".chart.path", &a.Chart.Path)
		}
		for m := range a.ValuesFiles {
			add(yamlfile.IndexPath(path+".valuesFiles", m), &a.ValuesFiles[m])
		}
	}
}

func eachSSH(c *v1alpha1.Cluster, do func(path string, s *v1alpha1.SSH)) {
	do("spec.ssh", &c.Spec.SSH)
	for i := range c.Spec.Hosts {
		do(yamlfile.IndexPath("spec.hosts", i)+".ssh", &c.Spec.Hosts[i].SSH)
	}
}

// A fileValidator checks the files that a cluster file names.
type fileValidator struct{ *validator }

// CheckFiles checks everything on this machine that a cluster names: keys, secrets,
// scripts, materials, add-ons and a bundle path. It opens files and reads the
// environment, and prints nothing of their content.
func CheckFiles(c *v1alpha1.Cluster, p Paths) diag.List {
	v := fileValidator{&validator{c: c}}
	eachSSH(c, func(path string, s *v1alpha1.SSH) {
		v.checkKeyFile(path+".privateKeyFile", s.PrivateKeyFile, p, s.PassphraseFrom != nil)
		v.checkSecretFrom(path+".passphraseFrom", s.PassphraseFrom, p)
		v.checkSecretFrom(path+".passwordFrom", s.PasswordFrom, p)
		v.checkSecretFrom(path+".sudoPasswordFrom", s.SudoPasswordFrom, p)
		if b := s.Bastion; b != nil {
			v.checkKeyFile(path+".bastion.privateKeyFile", b.PrivateKeyFile, p, b.PassphraseFrom != nil)
			v.checkSecretFrom(path+".bastion.passphraseFrom", b.PassphraseFrom, p)
			v.checkSecretFrom(path+".bastion.passwordFrom", b.PasswordFrom, p)
		}
	})
	for _, f := range fileFields(c) {
		switch {
		case strings.HasPrefix(f.path, "spec.hooks"), strings.Contains(f.path, ".valuesFiles["):
			v.requireOrdinaryFile(f.path, *f.value, p)
		case strings.HasPrefix(f.path, "spec.addons"):
			v.requirePath(f.path, *f.value, p)
		}
	}
	v.checkExternalFiles(p)
	v.checkCopyFiles(p)
	v.checkRegistryFiles(p)
	v.checkPrivateRegistryFiles(p)
	v.checkAuditPolicy(p)
	if b := c.Spec.Bundle; IsBundlePath(b) {
		if _, err := os.Stat(p.Resolve(b)); err != nil {
			v.refuse(idFileMissing, "spec.bundle", "the bundle cannot be used: "+errorReason(err, p.Resolve(b)),
				"run 'slipway bundle build' to create one, or leave the field out: Slipway then finds or builds the right bundle")
		}
	}
	if len(c.Spec.FilesFrom) > 0 {
		return nameKeys(v.found, p.Dir)
	}
	return v.found
}

// hintPath is the hint for a missing file, and hintKey the same for files of spec.filesFrom.
const (
	hintPath = "check the path, which is relative to the cluster file"
	hintKey  = "store the file under its name as a key of a source in spec.filesFrom"
)

// nameKeys returns findings about files from Secrets and ConfigMaps. They have the names of keys instead of
// paths in the private directory, of which users know nothing.
func nameKeys(found diag.List, dir string) diag.List {
	texts := strings.NewReplacer(filepath.Clean(dir)+"/", "", filepath.Clean(dir), "spec.filesFrom", hintPath, hintKey)
	for i, d := range found {
		found[i].Message, found[i].Hint = texts.Replace(d.Message), texts.Replace(d.Hint)
	}
	return found
}

// checkRegistryFiles checks the credentials and CAs of registries.
func (v fileValidator) checkRegistryFiles(p Paths) {
	for i, a := range v.c.Spec.Registry.Auths {
		path := yamlfile.IndexPath("spec.registry.auths", i)
		v.checkSecretFrom(path+".passwordFrom", a.PasswordFrom, p)
		v.checkCertificates(path+".caFile", v.readContent(path+".caFile", a.CAFile, p, false), p.Resolve(a.CAFile), p.now())
	}
}

// errorReason returns an error without the name that the message already has.
func errorReason(err error, name string) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return name + ": " + pathError.Err.Error()
	}
	return err.Error()
}

func (v fileValidator) checkKeyFile(path, name string, p Paths, hasPassphrase bool) {
	if name == "" {
		return
	}
	name = p.Resolve(name)
	f, err := bounded.Open(name)
	if err != nil {
		v.refuse(idKeyUnreadable, path, "the key cannot be read: "+errorReason(err, name),
			"use a private key that the hosts accept, or remove the field to use the agent and the default keys")
		return
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		v.refuse(idKeyUnreadable, path, "the key cannot be read: "+errorReason(err, name), "")
		return
	}
	encrypted, problem, hint := InspectKey(data)
	switch {
	case problem != "":
		v.refuse(idKeyUnreadable, path, name+" "+problem, hint)
		return
	case encrypted && !hasPassphrase:
		v.warn(idKeyEncrypted, path, name+" is encrypted, and passphraseFrom is not set: the key can only be used through an agent",
			"set passphraseFrom to a file or a variable, or run ssh-add")
	}
	v.warnReadableSecret(path, name, f)
}

// warnReadableSecret warns about a secret that other users of this machine can read.
func (v fileValidator) warnReadableSecret(path, name string, f *os.File) {
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		v.warn(idFilePermissions, path, fmt.Sprintf("%s has mode %04o: other users can read it", name, info.Mode().Perm()), "chmod 600 "+name)
	}
}

// InspectKey checks the format of a private key, and reports whether it needs a passphrase.
func InspectKey(data []byte) (encrypted bool, problem, hint string) {
	block, _ := pem.Decode(data)
	switch {
	case block == nil && (bytes.HasPrefix(data, []byte("ssh-")) || bytes.HasPrefix(data, []byte("ecdsa-"))):
		return false, "is a public key", "write the path of the private key file, which has no .pub suffix"
	case block == nil && bytes.HasPrefix(data, []byte("PuTTY-User-Key-File")):
		return false, "is in PuTTY format", "convert it: puttygen KEY -O private-openssh-new -o NEW"
	case block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return false, "is not a private key", "use a key that ssh-keygen created"
	case block.Type == "OPENSSH PRIVATE KEY":
		// PROTOCOL.key of OpenSSH: a magic string, then the cipher's name.
		const magic = "openssh-key-v1\x00"
		rest, ok := bytes.CutPrefix(block.Bytes, []byte(magic))
		if !ok || len(rest) < 8 {
			return false, "is damaged", "create the key again, or copy it again"
		}
		return !bytes.HasPrefix(rest, []byte("\x00\x00\x00\x04none")), "", ""
	}
	return block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"), "", ""
}

func (v fileValidator) checkSecretFrom(path string, src *v1alpha1.SecretSource, p Paths) {
	if src == nil || (src.File == "") == (src.Env == "") {
		return // the check of the source reports it
	}
	found := *src
	found.File = p.Resolve(src.File)
	if info, err := os.Stat(found.File); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return // a pipe returns its secret only once, to the code that needs it
	}
	if _, err := secret.ResolveSource(found); err != nil {
		hint := hintPath
		if found.Env != "" {
			hint = "set the variable, and pass it through sudo: sudo --preserve-env=" + found.Env
		}
		v.refuse(idSecretUnreadable, path, "the secret cannot be read: "+errorReason(err, found.File), hint)
		return
	}
	if found.File == "" {
		return
	}
	if f, err := os.Open(found.File); err == nil {
		v.warnReadableSecret(path+".file", found.File, f)
		_ = f.Close() // nothing was written
	}
}

// requirePath requires a file or a directory.
func (v fileValidator) requirePath(path, name string, p Paths) {
	if name == "" {
		return
	}
	name = p.Resolve(name)
	if _, err := os.Stat(name); err != nil {
		v.refuse(idFileMissing, path, "the file or directory cannot be read: "+errorReason(err, name), hintPath)
	}
}

func (v fileValidator) requireOrdinaryFile(path, name string, p Paths) {
	if name == "" {
		return
	}
	name = p.Resolve(name)
	f, err := bounded.Open(name)
	if err != nil {
		v.refuse(idFileMissing, path, "the file cannot be read: "+errorReason(err, name),
			hintPath+"; send a directory as an archive")
		return
	}
	_ = f.Close() // nothing was written
}
