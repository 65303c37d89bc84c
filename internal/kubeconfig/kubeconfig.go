// Package kubeconfig adds the access to a cluster to a user's kubeconfig and removes it
// again. It keeps all other entries, unknown fields and comments.
package kubeconfig

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
)

// The diagnostics of this package; see docs/guide/errors.md.
const (
	idConflict = "kubeconfig-conflict"
	idInvalid  = "kubeconfig-invalid"
	idLocked   = "kubeconfig-locked"
	idForeign  = "kubeconfig-foreign"
	idDamaged  = "record-damaged" // as in package store
)

// An Access is the access to one cluster.
type Access struct {
	// Cluster is the name of the context. The entries of cluster and user have this
	// name with the prefix "slipway-".
	Cluster string
	// Context is another name for the context, if not "".
	Context string
	// Admin is the admin kubeconfig, with the fields of the type Admin and no others.
	Admin []byte
	// Server replaces the server in Admin, if not "".
	Server string
}

// CheckUsable returns a diag.List if Admin cannot be used.
func (a Access) CheckUsable() error {
	_, err := a.toEntry()
	return err
}

// MergeOptions are the user's choices.
type MergeOptions struct {
	// Use makes the context the current one. If there is none, the context always
	// becomes the current one.
	Use bool
	// Replace overwrites entries of the same names that lead to another cluster.
	Replace bool
}

// Merge adds access to the file at path, which is created if it does not exist. Merging
// again changes nothing. If a context with the same name, or the cluster's entries, lead to
// another cluster, Merge returns a diag.List unless opts.Replace is set: their owner would
// lose the access to that cluster.
func Merge(ctx context.Context, path string, access Access, opts MergeOptions, to *fileowner.Owner) error {
	entry, err := access.toEntry()
	if err != nil {
		return err
	}
	return editFile(ctx, path, to, func(d *document) error {
		if !opts.Replace {
			if err := d.checkConflict(path, entry); err != nil {
				return err
			}
		}
		d.putEntry(entry)
		if opts.Use || d.topLevelText(keyCurrent) == "" {
			d.setText(keyCurrent, entry.context)
		}
		return nil
	})
}

// Remove removes access from the file at path. A file that does not exist or is not a
// regular file, such as /dev/null, is not an error. Contexts with other names that refer
// to the cluster are removed too; if one of them was the current one, there is no current
// context afterwards. With access.Admin, an entry that leads to another cluster is kept.
func Remove(ctx context.Context, path string, access Access, to *fileowner.Owner) error {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	entry := entryNames(access.Cluster)
	if len(access.Admin) > 0 {
		var err error
		if entry, err = access.toEntry(); err != nil {
			return err
		}
	}
	return editFile(ctx, path, to, func(d *document) error {
		if len(access.Admin) == 0 || d.findOtherCluster(entry) == nil {
			d.removeEntry(entry)
		}
		return nil
	})
}

// Write writes a kubeconfig with only this access to path, and replaces an existing file.
func Write(path string, access Access, to *fileowner.Owner) error {
	entry, err := access.toEntry()
	if err != nil {
		return err
	}
	if err := checkRegular(path); err != nil {
		return err
	}
	d := newDocument()
	d.putEntry(entry)
	d.setText(keyCurrent, entry.context)
	data, err := d.encodeDocument()
	if err != nil {
		return err
	}
	p, err := openPlace(path, to)
	if err != nil {
		return err
	}
	return errors.Join(p.replaceFile(data, to), p.close())
}

// editFile changes the file at path under its lock. If nothing changes, it does not write the
// file.
func editFile(ctx context.Context, path string, to *fileowner.Owner, change func(*document) error) error {
	if err := checkRegular(path); err != nil {
		return err
	}
	p, err := openPlace(path, to)
	if err != nil {
		return err
	}
	unlock, err := p.lockFile(ctx)
	if err != nil {
		return errors.Join(err, p.close())
	}
	return errors.Join(editLocked(p, to, change), unlock(), p.close())
}

func editLocked(p *configPlace, to *fileowner.Owner, change func(*document) error) error {
	data, err := p.readContent()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	d, err := parseDocument(data)
	if err != nil {
		return newRefusal(idInvalid, p.path, "this is not a kubeconfig: "+err.Error(),
			"fix the file, or choose another file with KUBECONFIG or --out")
	}
	before, err := d.encodeDocument()
	if err != nil {
		return err
	}
	if err := change(d); err != nil {
		return err
	}
	after, err := d.encodeDocument()
	if err != nil {
		return err
	}
	if len(data) > 0 && string(before) == string(after) {
		return nil
	}
	return p.replaceFile(after, to)
}

// checkRegular refuses a path that exists and is not a regular file: a device or a pipe would
// be replaced by a file, for all users of this machine.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil // a file that cannot be examined cannot be written either, which reports the error
	}
	return notRegularError(path)
}

func notRegularError(path string) error {
	return newRefusal(idInvalid, path, "this is not a file that can hold a kubeconfig",
		"choose another file with KUBECONFIG or --out; without --out and --merge the kubeconfig is printed")
}

func newRefusal(id, path, message, hint string) error {
	return diag.List{{ID: id, Severity: diag.Error, File: path, Message: message, Hint: hint}}
}

// toEntry returns the access as items of a kubeconfig.
func (a Access) toEntry() (entry, error) {
	out := entryNames(a.Cluster)
	out.context = cmp.Or(a.Context, out.context)
	damaged := func(why string) error {
		return diag.List{{
			ID: idDamaged, Severity: diag.Error, Message: "the admin kubeconfig of cluster " + a.Cluster + " is damaged: " + why,
			Hint: "get a new one from a control plane: slipway kubeconfig " + a.Cluster + " --live",
		}}
	}
	admin, err := ParseAdmin(a.Admin)
	if err != nil {
		return out, damaged(err.Error())
	}
	out.cluster = newMapping(
		"certificate-authority-data", base64.StdEncoding.EncodeToString(admin.CA),
		"server", cmp.Or(a.Server, admin.Server), "tls-server-name", admin.TLSServerName)
	out.user = newMapping(
		"client-certificate-data", base64.StdEncoding.EncodeToString(admin.Certificate),
		"client-key-data", base64.StdEncoding.EncodeToString(admin.Key))
	return out, nil
}

// checkConflict returns an error if d has entries with the names of e that lead to another
// cluster.
func (d *document) checkConflict(path string, e entry) error {
	var found []string
	if old := d.findOtherCluster(e); old != nil {
		found = append(found, "its cluster entry "+strconv.Quote(e.entryName)+" leads to "+textOf(old, "server"))
	}
	context := fieldOf(d.findItem(keyContexts, e.context), "context")
	if name := textOf(context, "cluster"); context != nil && name != e.entryName {
		other := fieldOf(d.findItem(keyClusters, name), "cluster")
		if other == nil || !sameServer(other, e.cluster) || !sameCA(other, e.cluster) {
			leads := " leads to " + textOf(other, "server")
			if textOf(other, "server") == "" {
				leads = " names the cluster " + strconv.Quote(name) + ", which has no server in the file"
			}
			found = append(found, "its context "+strconv.Quote(e.context)+leads)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return newRefusal(idConflict, path, strings.Join(found, ", and ")+"; this cluster is at "+textOf(e.cluster, "server"),
		"rename the old one (kubectl config rename-context), or write this one to a separate file "+
			"(slipway kubeconfig "+e.context+" --out FILE)")
}

// findOtherCluster returns the cluster entry that has the name of e but is another cluster, or nil.
// An entry with the same server or the same CA is the same cluster, recreated or moved.
func (d *document) findOtherCluster(e entry) *yaml.Node {
	old := fieldOf(d.findItem(keyClusters, e.entryName), "cluster")
	if old == nil || sameServer(old, e.cluster) || sameCA(old, e.cluster) {
		return nil
	}
	return old
}
