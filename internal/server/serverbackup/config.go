package serverbackup

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

const (
	minInterval = time.Minute
	maxKeep     = 1000
)

// A Config is the file with the backups that a server makes.
type Config struct {
	// Interval is the time between two backups. Default: 6h.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Keep is the number of backups in the directory. Default: 8.
	Keep *int `json:"keep,omitempty"`
	// Directory is an existing directory. Default: backups in the data directory.
	Directory string `json:"directory,omitempty"`
	// Recipients are age public keys for the encryption of all backups.
	Recipients []string `json:"recipients,omitempty"`
	// Copies are targets of copies, as in spec.etcd.backup.copies of a cluster file.
	Copies []v1alpha1.EtcdCopy `json:"copies,omitempty"`
}

// LoadConfig reads a file with backups. The error is a diag.List with all its problems.
func LoadConfig(file string) (*Config, error) {
	data, err := bounded.ReadArgument(file, bounded.Argument)
	if err != nil {
		return nil, fmt.Errorf("reading the backup configuration: %w", err)
	}
	return ParseConfig(file, data)
}

// ParseConfig reads the text of a file with backups. Names of files in it are relative to the
// file.
func ParseConfig(file string, data []byte) (*Config, error) {
	docs, problem := yamlfile.ReadDocuments(file, data)
	if problem != nil {
		problem.Hint = "write the backups of the server, such as 'interval: 6h'"
		return nil, diag.List{*problem}
	}
	d := &yamlfile.Decoder{File: file, Positions: yamlfile.Positions{}}
	if len(docs) > 1 {
		d.Report(docs[1], "", idInvalidValue, "a second document begins here, but the file has only one", "remove the other documents")
		return nil, d.Problems
	}
	c := &Config{}
	d.Decode(docs[0].Content[0], c)
	all := d.Problems
	if !d.Unreadable {
		found := c.checkFields(filepath.Dir(file))
		for i := range found {
			at := d.Positions.At(found[i].Path)
			found[i].File, found[i].Line, found[i].Column = file, at.Line, at.Column
		}
		all = append(all, d.DropEchoes(found)...)
	}
	all.Sort()
	if err := all.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkFields sets the defaults and returns the problems.
func (c *Config) checkFields(dir string) (out diag.List) {
	refuse := func(id, path, message, hint string) {
		out = append(out, diag.Diagnostic{ID: id, Severity: diag.Error, Path: path, Message: message, Hint: hint})
	}
	if c.Interval == nil {
		c.Interval = &metav1.Duration{Duration: spec.DefaultBackupEvery}
	}
	if c.Interval.Duration < minInterval {
		refuse(idInvalidDuration, "interval", c.Interval.Duration.String()+" is too short for the time between two backups",
			"write a duration of at least "+minInterval.String()+", such as 6h")
	}
	if c.Keep == nil {
		c.Keep = new(spec.DefaultBackupKeep)
	}
	keep := *c.Keep
	if keep < 1 || keep > maxKeep {
		refuse(idInvalidValue, "keep", fmt.Sprintf("%d is not between 1 and %d", keep, maxKeep), "write the number of backups to keep, such as 8")
		keep = 1
	}
	if c.Directory != "" && (!filepath.IsAbs(c.Directory) || filepath.Clean(c.Directory) != c.Directory) {
		refuse(idInvalidValue, "directory", fmt.Sprintf("%q is not an absolute path without '.' and '..'", c.Directory),
			"write an existing directory such as /srv/backups")
	}
	b := &v1alpha1.EtcdBackup{Keep: keep, Recipients: c.Recipients, Copies: c.Copies}
	return append(out, spec.CheckCopyTargets(b, spec.Paths{Dir: dir})...)
}

// Schedule returns the schedule of a configuration without problems.
func (c *Config) Schedule() (Schedule, error) {
	recipients, err := backup.ParseRecipients(c.Recipients)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{Interval: c.Interval.Duration, Keep: *c.Keep, Directory: c.Directory, Recipients: recipients}
	for _, to := range c.Copies {
		s.Targets = append(s.Targets, targetOf(to))
	}
	return s, nil
}

// Target returns the copy target with a name.
func (c *Config) Target(name string) (Target, error) {
	for _, to := range c.Copies {
		if to.Name == name {
			return targetOf(to), nil
		}
	}
	return Target{}, diag.Refuse(idNoTarget, fmt.Sprintf("the backup configuration has no copy target %q", name),
		"use the name of an entry of copies")
}

// targetOf returns how the server reaches a target. Its credentials are read for each
// connection, so that they can be replaced.
func targetOf(to v1alpha1.EtcdCopy) Target {
	return Target{Name: to.Name, Keep: to.Keep, Open: func(ctx context.Context) (copies.Target, error) {
		if to.Directory != "" {
			return copies.OpenDirectory(to.Directory)
		}
		login, err := readLogin(to)
		if err != nil {
			return nil, fmt.Errorf("reading the credentials of target %s: %w", to.Name, err)
		}
		return copies.Open(ctx, reachTarget(to), login)
	}}
}

// reachTarget returns the address of a target.
func reachTarget(to v1alpha1.EtcdCopy) op.CopyTarget {
	out := op.CopyTarget{Name: to.Name, Keep: to.Keep}
	if m := to.SSH; m != nil {
		out.SSH = &op.CopySSH{Address: m.Address, Port: m.Port, User: m.User, Directory: m.Directory, HostKey: m.HostKey}
	}
	if b := to.S3; b != nil {
		out.S3 = &op.CopyS3{
			Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Bucket, Prefix: b.Prefix, PathStyle: b.PathStyle == nil || *b.PathStyle,
		}
	}
	return out
}

// readLogin returns the credentials of a target, in the form for copies.Open.
func readLogin(to v1alpha1.EtcdCopy) ([]byte, error) {
	if to.SSH != nil {
		key, err := secret.ResolveSource(*to.SSH.PrivateKeyFrom)
		return []byte(key.Reveal()), err
	}
	access, err := secret.ResolveSource(*to.S3.AccessKeyFrom)
	if err != nil {
		return nil, err
	}
	key, err := secret.ResolveSource(*to.S3.SecretKeyFrom)
	if err != nil {
		return nil, err
	}
	login := copies.S3Login{AccessKey: access.Reveal(), SecretKey: key.Reveal()}
	if to.S3.CAFile != "" {
		authorities, err := bounded.ReadArgument(to.S3.CAFile, bounded.Argument)
		if err != nil {
			return nil, err
		}
		login.Authorities = string(authorities)
	}
	return login.Encode()
}
