// Package kubekey reads KubeKey's cluster files (kubekey.kubesphere.io/v1alpha2)
// and writes ours: every field is mapped, or named with the reason why not and
// its place.
package kubekey

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
)

const (
	apiVersion = "kubekey.kubesphere.io/v1alpha2"
	kind       = "Cluster"
)

// The diagnostics of a conversion, each with an entry in docs/guide/errors.md.
const (
	idUnknownKind     = "unknown-kind"
	idUnknownHost     = "unknown-host"
	idInvalidSelector = "invalid-selector"
	idInvalidValue    = "invalid-value"
	idNotSupportedYet = "not-supported-yet"
	idInlinePassword  = "inline-password"
	// idLost is a field that the cluster would be another without.
	idLost = "lost-in-conversion"
	// idNotConverted is a field that the cluster is the same without.
	idNotConverted = "not-converted"
	// idOtherDefault is something that the file leaves open, and that KubeKey
	// and Slipway fill differently.
	idOtherDefault = "other-default"
)

// allowHint is what a user who can do without a field types.
const allowHint = "change the file, or run the command with --allow-loss to convert without this part"

// Options say how to convert. The zero value works.
type Options struct {
	// File is the name of the file in diagnostics and comments.
	File string
	// Kubernetes takes the place of the file's version, if set.
	Kubernetes string
	// Default is the version that is written if the file's cannot be.
	Default string
	// Supported refuses a version, with a reason for the user. Nil supports
	// all.
	Supported func(version string) error
	// AllowLoss converts without what cannot be said: warnings, not errors.
	AllowLoss bool
	// Scripts is the directory for the scripts of hooks, as seen from the
	// file that is written; without it there can be no hooks.
	Scripts string
	// Resolve makes the name of a file in the source one that can be used
	// from the file that is written. Nil leaves names as they are.
	Resolve func(name string) string
}

// A Result is a converted file.
type Result struct {
	Cluster *v1alpha1.Cluster
	// Text is the cluster file, with comments where it needs a person.
	Text []byte
	// Scripts are the contents of the hooks' scripts, by their paths in the
	// cluster file.
	Scripts map[string][]byte
	// Warnings are what is not as it was, or needs a person.
	Warnings diag.List
}

// Convert converts a file. The result passes our own validation; the error is
// a diag.List of all that keeps it from that, warnings included, in the order
// of the file.
func Convert(data []byte, o Options) (*Result, error) {
	c := &conversion{o: o, refused: map[string]diag.Diagnostic{}}
	if err := c.read(data); err != nil {
		return nil, err
	}
	// What our validation refuses and something else can stand for is written
	// differently the next time; every round has one attempt less.
	for {
		c.begin()
		c.convert()
		if !c.judge() {
			break
		}
	}
	all := slices.Concat(c.reading, c.found)
	all.Sort()
	all = slices.Compact(all) // an item of a group may stand for many hosts
	if len(all.Errors()) > 0 {
		return nil, all
	}
	text, err := spec.MarshalCommented(c.out, c.comments)
	if err != nil {
		return nil, err
	}
	return &Result{Cluster: c.out, Text: text, Scripts: c.scripts, Warnings: all}, nil
}

// A conversion is one file on its way.
type conversion struct {
	o       Options
	in      cluster
	at      *spec.ForeignDocument
	others  []spec.ForeignDocument
	reading diag.List
	// refused are the attempts that our validation has refused, and why.
	refused map[string]diag.Diagnostic

	// What follows is begun anew in each round.
	out      *v1alpha1.Cluster
	found    diag.List
	comments spec.Comments
	scripts  map[string][]byte
	origins  []origin
	// variables are the names of those that hold passwords.
	variables []string
}

// An origin says which field of ours came from which of theirs. Of several,
// the one that names the most of a path counts.
type origin struct{ to, from, attempt string }

// An attempt is a value that something else can stand for, if our validation
// refuses it.
type attempt struct {
	name string
	from string // their field
	near string // our field, which carries the comment
	// instead says what is written in its place.
	instead string
	// chosen says that the user wrote it: another value is a loss.
	chosen bool
}

func (c *conversion) begin() {
	c.out = &v1alpha1.Cluster{}
	c.out.APIVersion, c.out.Kind = v1alpha1.APIVersion, spec.Kind
	c.found, c.origins, c.variables = nil, nil, nil
	c.comments = spec.Comments{}
	c.scripts = map[string][]byte{}
	c.comments.Add("", "Converted from a KubeKey file"+fileText(c.o.File)+" by 'slipway convert'.")
}

func fileText(file string) string {
	if file == "" {
		return ""
	}
	return ", " + path.Base(file) + ","
}

// read finds the cluster among the documents.
func (c *conversion) read(data []byte) error {
	f, err := spec.ReadForeign(c.o.File, data)
	if err != nil {
		return err
	}
	for i := range f.Documents {
		doc := &f.Documents[i]
		if doc.APIVersion == apiVersion && doc.Kind == kind && c.at == nil {
			c.at = doc
			continue
		}
		c.others = append(c.others, *doc)
	}
	if c.at == nil {
		doc := f.Documents[0]
		hint := "use a KubeKey file, which begins with 'apiVersion: " + apiVersion + "' and 'kind: " + kind + "'"
		switch {
		case doc.APIVersion == v1alpha1.APIVersion:
			hint = "use the file as it is: it is already a Slipway cluster file"
		case strings.HasPrefix(doc.APIVersion, "kubekey.kubesphere.io/"):
			hint = "convert only files of KubeKey 3 (" + apiVersion + "); for a running cluster, run 'slipway create config --from-cluster'"
		}
		return diag.List{{
			ID: idUnknownKind, Severity: diag.Error, File: c.o.File, Line: doc.Line, Column: doc.Column, Hint: hint,
			Message: fmt.Sprintf("the file has no KubeKey cluster: apiVersion is %q and kind is %q", doc.APIVersion, doc.Kind),
		}}
	}
	c.reading = c.at.Decode(&c.in)
	for i := range c.reading {
		if d := &c.reading[i]; d.Severity == diag.Warning {
			d.Message += "; KubeKey ignores it as well"
			if places := placesOf(d.Path); len(places) > 0 {
				d.Hint = "move it to " + strings.Join(places, " or ")
			}
		}
	}
	return c.reading.Err()
}

// placesOf are where KubeKey has fields of the name that a path ends with, at most
// three.
func placesOf(path string) []string {
	name := path[strings.LastIndex(path, ".")+1:]
	var out []string
	for _, field := range sortedKeys(fields) {
		for at, word := range strings.Split(field, ".") {
			if strings.TrimSuffix(word, "[]") != name {
				continue
			}
			place := strings.TrimSuffix(strings.Join(strings.Split(field, ".")[:at+1], "."), "[]")
			if place != spec.FieldPath(path) && !slices.Contains(out, place) {
				out = append(out, place)
			}
		}
	}
	if len(out) > 3 {
		return nil
	}
	return out
}

func (c *conversion) convert() {
	c.header()
	c.hosts()
	c.logins()
	c.endpoint()
	c.kubernetes()
	c.kubelet()
	c.etcd()
	c.network()
	c.registry()
	c.dns()
	c.system()
	c.hooks()
	c.rest()
	for i, doc := range c.others {
		c.note(diag.Diagnostic{
			ID: idNotSupportedYet, Severity: diag.Error, Line: doc.Line, Column: doc.Column,
			Message: fmt.Sprintf("this document (%s) is not converted: Slipway cannot install KubeSphere yet", cmp.Or(doc.Kind, "text without a kind")),
			Hint:    allowHint,
		}, "", "Document "+strconv.Itoa(i+2)+" of the file ("+cmp.Or(doc.Kind, "text without a kind")+") was left out.")
	}
}

// note reports what a loss is; if losses are allowed, it is a warning, and a
// comment near a field of ours.
func (c *conversion) note(d diag.Diagnostic, near, comment string) {
	d.File = c.o.File
	if c.o.AllowLoss && d.Severity == diag.Error {
		d.Severity, d.Hint = diag.Warning, ""
	}
	if d.Severity == diag.Warning && comment != "" {
		c.comments.Add(near, comment)
	}
	c.found = append(c.found, d)
}

// place is a diagnostic at a field of theirs.
func (c *conversion) place(id string, severity diag.Severity, from, message, hint string) diag.Diagnostic {
	d := diag.Diagnostic{ID: id, Severity: severity, Path: from, Message: message, Hint: hint}
	d.Line, d.Column = c.at.Position(from)
	return d
}

// refuse reports what no option helps with.
func (c *conversion) refuse(id, from, message, hint string) {
	d := c.place(id, diag.Error, from, message, hint)
	d.File = c.o.File
	c.found = append(c.found, d)
}

// warn reports what the user should know, and writes it near a field of ours.
func (c *conversion) warn(id, from, near, message, hint, comment string) {
	c.note(c.place(id, diag.Warning, from, message, hint), near, comment)
}

// lose reports a field that the cluster is another without.
func (c *conversion) lose(id, from, near, why string) {
	c.note(c.place(id, diag.Error, from, why, allowHint), near, "KubeKey's "+from+" was left out: "+why+".")
}

// drop reports a field that the cluster is the same without.
func (c *conversion) drop(from, why string) {
	c.warn(idNotConverted, from, "", why, "", "")
}

// came says that our field is made from theirs.
func (c *conversion) came(to, from string) {
	c.origins = append(c.origins, origin{to: to, from: from})
}

// try says that our fields would be as in a; false, if our validation has
// refused that.
func (c *conversion) try(a attempt, to ...string) bool {
	if why, ok := c.refused[a.name]; ok {
		c.gave(a, why)
		return false
	}
	for _, path := range to {
		c.origins = append(c.origins, origin{to: path, from: a.from, attempt: a.name})
	}
	return true
}

// gave reports an attempt that was given up.
func (c *conversion) gave(a attempt, refusal diag.Diagnostic) {
	why := refusal.Message
	if !a.chosen {
		c.warn(idOtherDefault, a.from, a.near, "KubeKey's default cannot be used: "+why+"; "+a.instead, "", sentence(a.instead)+" (KubeKey's default cannot be used: "+why+").")
		return
	}
	id := idLost
	if refusal.ID == idNotSupportedYet {
		id = idNotSupportedYet
	}
	d := c.place(id, diag.Error, a.from, why+"; with --allow-loss: "+a.instead, allowHint)
	if c.o.AllowLoss {
		d.Message = why + "; " + a.instead
	}
	c.note(d, a.near, sentence(a.instead)+": "+why+".")
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// judge has our own validation judge what is written. It reports what is
// wrong at the fields that it came from; true asks for another round.
func (c *conversion) judge() (again bool) {
	filled := spec.Copy(c.out)
	spec.Default(filled, spec.DefaultOptions{KubernetesVersion: c.o.Default})
	for _, f := range spec.Validate(filled, spec.ValidateOptions{Supported: c.o.Supported}) {
		from := c.origin(f.Path)
		if _, ok := c.refused[from.attempt]; from.attempt != "" && !ok && f.Severity == diag.Error {
			c.refused[from.attempt] = f
			again = true
			continue
		}
		path := from.from
		if path == "" {
			path = "spec"
		}
		d := c.place(f.ID, f.Severity, path, f.Message, f.Hint)
		d.File = c.o.File
		c.found = append(c.found, d)
	}
	return again
}

// origin is where a field of ours came from.
func (c *conversion) origin(path string) origin {
	var best origin
	for _, o := range c.origins {
		if (spec.Within(path, o.to) || spec.Within(o.to, path)) && (best.to == "" || closer(o.to, best.to, path)) {
			best = o
		}
	}
	return best
}

// closer says that a is nearer to path than b: the longest that holds it, else
// the first that it holds.
func closer(a, b, path string) bool {
	aHolds, bHolds := spec.Within(path, a), spec.Within(path, b)
	if aHolds != bHolds {
		return aHolds
	}
	return aHolds && len(a) > len(b)
}

func (c *conversion) header() {
	m := c.in.Metadata
	c.out.Name = m.Name
	c.came("metadata.name", "metadata.name")
	c.out.Labels, c.out.Annotations = maps.Clone(m.Labels), maps.Clone(m.Annotations)
	delete(c.out.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
}
