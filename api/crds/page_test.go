package crds

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the tables of docs/spec")

// kubeletPage describes the fields of a kubelet's configuration.
const kubeletPage = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"

// moreAbout has the page about a field.
var moreAbout = map[string]string{
	"spec.controlPlaneEndpoint.mode":         "[endpoint](../../guide/endpoint.md)",
	"spec.kubernetes.kubelet.config":         "[KubeletConfiguration](" + kubeletPage + ")",
	"spec.kubernetes.certificates.autoRenew": "[certificates](../../guide/certificates.md#by-themselves)",
	"spec.kubernetes.audit":                  "[audit](../../guide/audit.md)",
	"spec.kubernetes.hardening":              "[hardening](../../guide/hardening.md)",
	"spec.kubernetes.encryption":             "[encryption](../../guide/encryption.md)",
	"spec.etcd.backup":                       "[backups](../../guide/backup.md#by-themselves)",
	"spec.etcd.backup.copies[]":              "[copies](../../guide/backup.md#copies-elsewhere)",
	"spec.containerRuntime.type":             "[runtimes](../../guide/runtimes.md)",
	"spec.registry.private":                  "[registry](../../guide/registry.md)",
	"spec.bundleKeys[]":                      "[signing](../../guide/bundle.md#signing)",
}

// A schema is a part of the schema of a CustomResourceDefinition.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Required    []string           `json:"required"`
	Enum        []any              `json:"enum"`

	AdditionalProperties *schema `json:"additionalProperties"`
}

// TestPages_HaveTablesOfTypes generates the tables of the pages in docs/spec. A table begins
// with a comment that names the fields at its root. It has each field below a root, unless
// another table has it.
func TestPages_HaveTablesOfTypes(t *testing.T) {
	for page, of := range map[string]struct {
		crd []byte
		typ reflect.Type
	}{
		"cluster.md":      {Clusters, reflect.TypeFor[v1alpha1.Cluster]()},
		"operation.md":    {Operations, reflect.TypeFor[v1alpha1.Operation]()},
		"operationlog.md": {OperationLogs, reflect.TypeFor[v1alpha1.OperationLog]()},
	} {
		t.Run(page, func(t *testing.T) {
			name := "../../docs/spec/v1alpha1/" + page
			have, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want := fillTables(t, string(have), fieldsOf(of.typ, schemaOf(t, of.crd), ""))
			if *update {
				if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(want, string(have)); d != "" {
				t.Errorf("%s does not fit the types: run 'make generate' (-types +page):\n%s", name, d)
			}
		})
	}
}

// TestSchemas_DescribeEveryField requires a description for each field.
func TestSchemas_DescribeEveryField(t *testing.T) {
	for name, crd := range map[string][]byte{"Cluster": Clusters, "Operation": Operations, "OperationLog": OperationLogs} {
		var check func(path string, s *schema)
		check = func(path string, s *schema) {
			for field, child := range s.Properties {
				if child.Description == "" && path+field != ".metadata" {
					t.Errorf("%s%s%s has no description", name, path, field)
				}
				check(path+field+".", child)
			}
			if s.Items != nil {
				check(path, s.Items)
			}
		}
		check(".", schemaOf(t, crd))
	}
}

func schemaOf(t *testing.T, crd []byte) *schema {
	t.Helper()
	var doc struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
				}
			}
		}
	}
	raw, err := yaml.YAMLToJSON(crd)
	if err == nil {
		err = json.Unmarshal(raw, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// A row is one field in a table.
type row struct {
	path, kind, standard, meaning string
}

// fieldsOf returns the fields of a type in the order of the type, with paths such as
// spec.hosts[].name.
func fieldsOf(typ reflect.Type, s *schema, path string) (out []row) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		child := s.Properties[name]
		if name == "" || child == nil || child.Description == "" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		r := row{path: at, kind: kindOf(f.Type, child)}
		switch text, isText := strings.CutSuffix(r.kind, "text"); {
		case isText && pathNames.MatchString(name):
			r.kind = text + "path"
		case isText && name == "directory":
			r.kind = text + "path on the host"
		}
		elem := f.Type
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		below := child
		if elem.Kind() == reflect.Slice && child.Items != nil {
			r.path, elem, below = at+"[]", elem.Elem(), child.Items
		}
		r.meaning, r.standard = splitDefault(child.Description)
		if r.standard == "" && slices.Contains(s.Required, name) {
			r.standard = "required"
		}
		if page := moreAbout[r.path]; page != "" {
			r.meaning += " See " + page + "."
		}
		out = append(out, r)
		if elem.Kind() == reflect.Struct && elem.PkgPath() == typ.PkgPath() && r.path != "spec.hosts[].ssh" &&
			(elem != reflect.TypeFor[v1alpha1.SecretSource]() || r.path == "spec.ssh.passwordFrom") {
			out = append(out, fieldsOf(elem, below, r.path)...)
		}
	}
	return out
}

// pathNames are names of fields with paths on the machine of the command line.
var pathNames = regexp.MustCompile(`([fF]iles?|script|materials|path)$`)

var defaultSentence = regexp.MustCompile(` ?Default: (.*)\.$`)

// splitDefault separates the default from a description.
func splitDefault(description string) (meaning, standard string) {
	text := strings.Join(strings.Fields(description), " ")
	if m := defaultSentence.FindStringSubmatch(text); m != nil {
		return strings.TrimSuffix(text, m[0]), m[1]
	}
	return text, ""
}

// kindOf describes the type of a field for users.
func kindOf(typ reflect.Type, s *schema) string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[metav1.Duration]():
		return "duration"
	case typ == reflect.TypeFor[metav1.Time]():
		return "time"
	case typ == reflect.TypeFor[[]byte]():
		return "base64"
	case typ == reflect.TypeFor[v1alpha1.SecretSource]():
		return "secret"
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return "list"
	case typ.Kind() == reflect.Slice:
		return "list of " + kindOf(typ.Elem(), s.Items)
	case s.AdditionalProperties != nil:
		return "{} " + kindOf(typ.Elem(), s.AdditionalProperties)
	case len(s.Enum) > 0:
		return "word"
	}
	return map[string]string{"string": "text", "integer": "number", "boolean": "true or false", "object": "mapping"}[s.Type]
}

var tables = regexp.MustCompile(`(?s)<!-- fields: ([^>]*) -->\n.*?<!-- end of fields -->\n`)

// fillTables writes the tables of a page.
func fillTables(t *testing.T, page string, all []row) string {
	t.Helper()
	if begins, ends := strings.Count(page, "<!-- fields: "), strings.Count(page, "<!-- end of fields -->"); begins != ends ||
		begins != len(tables.FindAllString(page, -1)) {
		t.Fatalf("the page has %d beginnings and %d ends of tables, which do not alternate", begins, ends)
	}
	var roots []string
	for _, m := range tables.FindAllStringSubmatch(page, -1) {
		roots = append(roots, strings.Fields(m[1])...)
	}
	// rootOf returns the longest root of a field.
	rootOf := func(path string) (root string) {
		for _, r := range roots {
			if (path == r || strings.HasPrefix(path, r+".")) && len(r) > len(root) {
				root = r
			}
		}
		return root
	}
	for _, r := range all {
		if r.path != "spec" && r.path != "status" && rootOf(r.path) == "" {
			t.Errorf("no table of the page has %s", r.path)
		}
	}
	return tables.ReplaceAllStringFunc(page, func(table string) string {
		own := strings.Fields(tables.FindStringSubmatch(table)[1])
		out := strings.SplitAfterN(table, "\n", 2)[0] + "| Field | Type | Default | Meaning |\n|---|---|---|---|\n"
		for _, r := range all {
			if slices.Contains(own, rootOf(r.path)) {
				out += "| `" + r.path + "` | " + r.kind + " | " + r.standard + " | " + strings.ReplaceAll(r.meaning, "|", "\\|") + " |\n"
			}
		}
		return strings.ReplaceAll(out, "|  |", "| |") + "<!-- end of fields -->\n"
	})
}
