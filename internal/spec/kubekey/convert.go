// Package kubekey reads KubeKey cluster files (kubekey.kubesphere.io/v1alpha2) and writes
// Slipway cluster files: every field is mapped, or reported with its place and the
// reason.
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
	"slipway.dev/slipway/internal/spec/yamlfile"
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
	// idLost: the cluster would be different without this field.
	idLost = "lost-in-conversion"
	// idNotConverted: the cluster is the same without this field.
	idNotConverted = "not-converted"
	// idOtherDefault: the file does not set a value for which KubeKey and Slipway have
	// different defaults.
	idOtherDefault = "other-default"
)

// allowHint is the hint for a field that the user may not need.
const allowHint = "change the file, or run the command with --allow-loss to convert without this part"

// Options configure a conversion. The zero value works.
type Options struct {
	// File is the name of the file in diagnostics and comments.
	File string
	// Kubernetes replaces the version of the file, if set.
	Kubernetes string
	// Default is the version that is written if the version of the file cannot be used.
	Default string
	// Supported returns an error for an unsupported version, with a reason for the user.
	// Nil supports all.
	Supported func(version string) error
	// AllowLoss converts without settings that cannot be expressed: with warnings instead
	// of errors.
	AllowLoss bool
	// Scripts is the directory for the scripts of hooks, relative to the written file;
	// without it hooks cannot be converted.
	Scripts string
	// Resolve converts a file name in the source to a name for the written file. Nil
	// keeps names unchanged.
	Resolve func(name string) string
}

// A Result is a converted file.
type Result struct {
	Cluster *v1alpha1.Cluster
	// Text is the cluster file, with comments where the user must act.
	Text []byte
	// Scripts maps paths in the cluster file to the contents of hook scripts.
	Scripts map[string][]byte
	// Warnings lists differences, and places where the user must act.
	Warnings diag.List
}

// Convert converts a file. The result passes Slipway's validation; the error is a
// diag.List of all problems that prevent this, with warnings, in the order of the file.
func Convert(data []byte, o Options) (*Result, error) {
	c := &conversion{o: o, refused: map[string]diag.Diagnostic{}}
	if err := c.readDocuments(data); err != nil {
		return nil, err
	}
	// A value that validation rejects and that has a replacement is written differently
	// in the next round; every round has one attempt less.
	for {
		c.resetResult()
		c.convertSections()
		if !c.validateResult() {
			break
		}
	}
	all := slices.Concat(c.reading, c.found)
	all.Sort()
	all = slices.Compact(all) // an item of a group can name many hosts
	if len(all.Errors()) > 0 {
		return nil, all
	}
	text, err := spec.MarshalCommented(c.out, c.comments)
	if err != nil {
		return nil, err
	}
	return &Result{Cluster: c.out, Text: text, Scripts: c.scripts, Warnings: all}, nil
}

// A conversion is the state of the conversion of one file.
type conversion struct {
	o       Options
	in      cluster
	at      *yamlfile.ExternalDocument
	others  []yamlfile.ExternalDocument
	reading diag.List
	// refused has the attempts that validation has rejected, with the reason.
	refused map[string]diag.Diagnostic

	// The following fields are reset in each round.
	out      *v1alpha1.Cluster
	found    diag.List
	comments yamlfile.Comments
	scripts  map[string][]byte
	origins  []origin
	// variables are the names of variables for passwords.
	variables []string
}

// An origin maps a Slipway field to the KubeKey field that it comes from. Of several, the
// one with the longest path is used.
type origin struct{ to, from, attempt string }

// An attempt is a value with a replacement, in case validation rejects it.
type attempt struct {
	name string
	from string // the KubeKey field
	near string // the Slipway field with the comment
	// instead describes the replacement.
	instead string
	// chosen reports whether the user wrote the value: another value is then a loss.
	chosen bool
}

func (c *conversion) resetResult() {
	c.out = &v1alpha1.Cluster{}
	c.out.APIVersion, c.out.Kind = v1alpha1.APIVersion, spec.Kind
	c.found, c.origins, c.variables = nil, nil, nil
	c.comments = yamlfile.Comments{}
	c.scripts = map[string][]byte{}
	c.comments.Add("", "Converted from a KubeKey file"+fileText(c.o.File)+" by 'slipway convert'.")
}

func fileText(file string) string {
	if file == "" {
		return ""
	}
	return ", " + path.Base(file) + ","
}

// readDocuments finds the cluster among the documents.
func (c *conversion) readDocuments(data []byte) error {
	f, err := yamlfile.ReadExternalFile(c.o.File, data)
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

// placesOf returns where KubeKey has fields with the last name of a path, at most three.
func placesOf(path string) []string {
	name := path[strings.LastIndex(path, ".")+1:]
	var out []string
	for _, field := range sortedKeys(fields) {
		for at, word := range strings.Split(field, ".") {
			if strings.TrimSuffix(word, "[]") != name {
				continue
			}
			place := strings.TrimSuffix(strings.Join(strings.Split(field, ".")[:at+1], "."), "[]")
			if place != yamlfile.DocumentedPath(path) && !slices.Contains(out, place) {
				out = append(out, place)
			}
		}
	}
	if len(out) > 3 {
		return nil
	}
	return out
}

func (c *conversion) convertSections() {
	c.convertHeader()
	c.convertHosts()
	c.convertLogins()
	c.convertEndpoint()
	c.convertKubernetes()
	c.convertKubelet()
	c.convertEtcd()
	c.convertNetwork()
	c.convertRegistry()
	c.convertDNS()
	c.convertSystem()
	c.convertHooks()
	c.reportUnmapped()
	for i, doc := range c.others {
		c.reportLoss(diag.Diagnostic{
			ID: idNotSupportedYet, Severity: diag.Error, Line: doc.Line, Column: doc.Column,
			Message: fmt.Sprintf("this document (%s) is not converted: Slipway cannot install KubeSphere yet",
				cmp.Or(doc.Kind, "text without a kind")),
			Hint: allowHint,
		}, "", "Document "+strconv.Itoa(i+2)+" of the file ("+cmp.Or(doc.Kind, "text without a kind")+") was left out.")
	}
}

// reportLoss reports a loss; if losses are allowed, it is a warning, and a comment at a Slipway
// field.
func (c *conversion) reportLoss(d diag.Diagnostic, near, comment string) {
	d.File = c.o.File
	if c.o.AllowLoss && d.Severity == diag.Error {
		d.Severity, d.Hint = diag.Warning, ""
	}
	if d.Severity == diag.Warning && comment != "" {
		c.comments.Add(near, comment)
	}
	c.found = append(c.found, d)
}

// diagnosticAt returns a diagnostic at a KubeKey field.
func (c *conversion) diagnosticAt(id string, severity diag.Severity, from, message, hint string) diag.Diagnostic {
	d := diag.Diagnostic{ID: id, Severity: severity, Path: from, Message: message, Hint: hint}
	d.Line, d.Column = c.at.Position(from)
	return d
}

// refuse reports a problem that no option can solve.
func (c *conversion) refuse(id, from, message, hint string) {
	d := c.diagnosticAt(id, diag.Error, from, message, hint)
	d.File = c.o.File
	c.found = append(c.found, d)
}

// warn reports information for the user, and writes it at a Slipway field.
func (c *conversion) warn(id, from, near, message, hint, comment string) {
	c.reportLoss(c.diagnosticAt(id, diag.Warning, from, message, hint), near, comment)
}

// reportChangedMeaning reports a field without which the cluster is different.
func (c *conversion) reportChangedMeaning(id, from, near, why string) {
	c.reportLoss(c.diagnosticAt(id, diag.Error, from, why, allowHint), near, "KubeKey's "+from+" was left out: "+why+".")
}

// reportDropped reports a field without which the cluster is the same.
func (c *conversion) reportDropped(from, why string) {
	c.warn(idNotConverted, from, "", why, "", "")
}

// recordOrigin records that a Slipway field comes from a KubeKey field.
func (c *conversion) recordOrigin(to, from string) {
	c.origins = append(c.origins, origin{to: to, from: from})
}

// tryValue reports whether Slipway fields can be as in a; false if validation has rejected it.
func (c *conversion) tryValue(a attempt, to ...string) bool {
	if why, ok := c.refused[a.name]; ok {
		c.reportRejected(a, why)
		return false
	}
	for _, path := range to {
		c.origins = append(c.origins, origin{to: path, from: a.from, attempt: a.name})
	}
	return true
}

// reportRejected reports a rejected attempt.
func (c *conversion) reportRejected(a attempt, refusal diag.Diagnostic) {
	why := refusal.Message
	if !a.chosen {
		c.warn(idOtherDefault, a.from, a.near, "KubeKey's default cannot be used: "+why+"; "+a.instead,
			"", asSentence(a.instead)+" (KubeKey's default cannot be used: "+why+").")
		return
	}
	id := idLost
	if refusal.ID == idNotSupportedYet {
		id = idNotSupportedYet
	}
	d := c.diagnosticAt(id, diag.Error, a.from, why+"; with --allow-loss: "+a.instead, allowHint)
	if c.o.AllowLoss {
		d.Message = why + "; " + a.instead
	}
	c.reportLoss(d, a.near, asSentence(a.instead)+": "+why+".")
}

func asSentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// validateResult validates the result. It reports problems at the original fields; true requests
// another round.
func (c *conversion) validateResult() (again bool) {
	filled := c.out.DeepCopy()
	spec.SetDefaults(filled, spec.DefaultOptions{KubernetesVersion: c.o.Default})
	for _, f := range spec.Validate(filled, spec.ValidateOptions{Supported: c.o.Supported}) {
		from := c.originOf(f.Path)
		if _, ok := c.refused[from.attempt]; from.attempt != "" && !ok && f.Severity == diag.Error {
			c.refused[from.attempt] = f
			again = true
			continue
		}
		path := from.from
		if path == "" {
			path = "spec"
		}
		d := c.diagnosticAt(f.ID, f.Severity, path, f.Message, f.Hint)
		d.File = c.o.File
		c.found = append(c.found, d)
	}
	return again
}

// originOf returns the origin of a Slipway field.
func (c *conversion) originOf(path string) origin {
	var best origin
	for _, o := range c.origins {
		if (yamlfile.IsWithin(path, o.to) || yamlfile.IsWithin(o.to, path)) && (best.to == "" || isCloser(o.to, best.to, path)) {
			best = o
		}
	}
	return best
}

// isCloser reports whether a is closer to path than b: the longest parent of path, else the
// first field in path.
func isCloser(a, b, path string) bool {
	aHolds, bHolds := yamlfile.IsWithin(path, a), yamlfile.IsWithin(path, b)
	if aHolds != bHolds {
		return aHolds
	}
	return aHolds && len(a) > len(b)
}

func (c *conversion) convertHeader() {
	m := c.in.Metadata
	c.out.Name = m.Name
	c.recordOrigin("metadata.name", "metadata.name")
	c.out.Labels, c.out.Annotations = maps.Clone(m.Labels), maps.Clone(m.Annotations)
	delete(c.out.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
}
