// Package kubeconfig puts the way into a cluster into a person's kubeconfig,
// and takes it out again, without touching what else is in there: entries,
// unknown fields and comments stay.
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
	"slipway.dev/slipway/internal/owner"
)

// The diagnostics of this package; see docs/guide/errors.md.
const (
	idConflict = "kubeconfig-conflict"
	idInvalid  = "kubeconfig-invalid"
	idLocked   = "kubeconfig-locked"
	idForeign  = "kubeconfig-foreign"
	idDamaged  = "record-damaged" // as package store has it
)

// An Access is the way into one cluster.
type Access struct {
	// Cluster names the context; the entries of cluster and user are called
	// "slipway-" and that.
	Cluster string
	// Context is another name for the context, if not "".
	Context string
	// Admin is the admin kubeconfig, with the fields of the type Admin and no others.
	Admin []byte
	// Server takes the place of the server in Admin, if not "".
	Server string
}

// Check says what is wrong with Admin: a diag.List if it leads nowhere.
func (a Access) Check() error {
	_, err := a.entry()
	return err
}

// MergeOptions are choices of the person.
type MergeOptions struct {
	// Use makes the context the current one. Without a current one, it
	// always becomes that.
	Use bool
	// Replace takes over names that lead to another cluster.
	Replace bool
}

// Merge puts access into the file at path, which is made if it is not there.
// Merging again changes nothing. A context of the same name that is not ours,
// or entries of ours that lead to another cluster, are a diag.List unless
// opts.Replace: whoever made them would lose the way in.
func Merge(ctx context.Context, path string, access Access, opts MergeOptions, to *owner.Owner) error {
	entry, err := access.entry()
	if err != nil {
		return err
	}
	return edit(ctx, path, to, func(d *document) error {
		if !opts.Replace {
			if err := d.conflict(path, entry); err != nil {
				return err
			}
		}
		d.put(entry)
		if opts.Use || d.text(keyCurrent) == "" {
			d.setText(keyCurrent, entry.context)
		}
		return nil
	})
}

// Remove takes access out of the file at path; a file that is not there,
// or none, as /dev/null, is fine. Contexts of other names that lead to the cluster go as well; if one of
// them was the current one, there is none afterwards. With access.Admin, an
// entry that leads to another cluster stays.
func Remove(ctx context.Context, path string, access Access, to *owner.Owner) error {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	entry := names(access.Cluster)
	if len(access.Admin) > 0 {
		var err error
		if entry, err = access.entry(); err != nil {
			return err
		}
	}
	return edit(ctx, path, to, func(d *document) error {
		if len(access.Admin) == 0 || d.stranger(entry) == nil {
			d.remove(entry)
		}
		return nil
	})
}

// Write makes a kubeconfig of access alone at path, over what is there.
func Write(path string, access Access, to *owner.Owner) error {
	entry, err := access.entry()
	if err != nil {
		return err
	}
	if err := regular(path); err != nil {
		return err
	}
	d := newDocument()
	d.put(entry)
	d.setText(keyCurrent, entry.context)
	data, err := d.bytes()
	if err != nil {
		return err
	}
	p, err := open(path, to)
	if err != nil {
		return err
	}
	return errors.Join(p.replace(data, to), p.close())
}

// edit changes the file at path under its lock; an edit that changes nothing
// writes nothing.
func edit(ctx context.Context, path string, to *owner.Owner, change func(*document) error) error {
	if err := regular(path); err != nil {
		return err
	}
	p, err := open(path, to)
	if err != nil {
		return err
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return errors.Join(err, p.close())
	}
	return errors.Join(editLocked(p, to, change), unlock(), p.close())
}

func editLocked(p *place, to *owner.Owner, change func(*document) error) error {
	data, err := p.read()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	d, err := parse(data)
	if err != nil {
		return refusal(idInvalid, p.path, "this is not a kubeconfig: "+err.Error(), "mend it, or choose another file with KUBECONFIG or --out")
	}
	before, err := d.bytes()
	if err != nil {
		return err
	}
	if err := change(d); err != nil {
		return err
	}
	after, err := d.bytes()
	if err != nil {
		return err
	}
	if len(data) > 0 && string(before) == string(after) {
		return nil
	}
	return p.replace(after, to)
}

// regular refuses what is there and is no file: a device or a pipe would be
// replaced by one, for everybody on this machine.
func regular(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil // what cannot be looked at cannot be written either, and says so itself
	}
	return irregular(path)
}

func irregular(path string) error {
	return refusal(idInvalid, path, "this is not a file that can hold a kubeconfig", "choose another file with KUBECONFIG or --out; without them it is printed")
}

func refusal(id, path, message, hint string) error {
	return diag.List{{ID: id, Severity: diag.Error, File: path, Message: message, Hint: hint}}
}

// entry is access in the terms of a kubeconfig.
func (a Access) entry() (entry, error) {
	out := names(a.Cluster)
	out.context = cmp.Or(a.Context, out.context)
	damaged := func(why string) error {
		return diag.List{{
			ID: idDamaged, Severity: diag.Error, Message: "the admin kubeconfig of cluster " + a.Cluster + " is damaged: " + why,
			Hint: "a control plane has another: slipway kubeconfig " + a.Cluster + " --live",
		}}
	}
	admin, err := ParseAdmin(a.Admin)
	if err != nil {
		return out, damaged(err.Error())
	}
	out.cluster = mapping(
		"certificate-authority-data", base64.StdEncoding.EncodeToString(admin.CA),
		"server", cmp.Or(a.Server, admin.Server), "tls-server-name", admin.TLSServerName)
	out.user = mapping(
		"client-certificate-data", base64.StdEncoding.EncodeToString(admin.Certificate),
		"client-key-data", base64.StdEncoding.EncodeToString(admin.Key))
	return out, nil
}

// conflict says what in d has the names of e and leads elsewhere.
func (d *document) conflict(path string, e entry) error {
	var found []string
	if old := d.stranger(e); old != nil {
		found = append(found, "its cluster entry "+strconv.Quote(e.entryName)+" leads to "+textOf(old, "server"))
	}
	context := field(d.find(keyContexts, e.context), "context")
	if name := textOf(context, "cluster"); context != nil && name != e.entryName {
		other := field(d.find(keyClusters, name), "cluster")
		if other == nil || !sameServer(other, e.cluster) || !sameAuthority(other, e.cluster) {
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
	return refusal(idConflict, path, strings.Join(found, ", and ")+"; this cluster is at "+textOf(e.cluster, "server"),
		"rename the old one (kubectl config rename-context), or write this one apart (slipway kubeconfig "+e.context+" --out FILE)")
}

// stranger is the cluster that has the name of e and is another, or nil. One
// at the same server, or with the same authority, is ours: made anew, or
// moved.
func (d *document) stranger(e entry) *yaml.Node {
	old := field(d.find(keyClusters, e.entryName), "cluster")
	if old == nil || sameServer(old, e.cluster) || sameAuthority(old, e.cluster) {
		return nil
	}
	return old
}
