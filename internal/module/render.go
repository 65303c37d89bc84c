package module

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

// RenderTemplate executes a template of a module, a file below "templates".
func RenderTemplate(files fs.FS, name string, data any) ([]byte, error) {
	t, err := template.ParseFS(files, "templates/"+name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// UnitWord quotes one word of a command line in a unit file, by the rules of
// systemd.syntax(7) and systemd.service(5).
func UnitWord(s string) string { return unitPath(strings.ReplaceAll(s, "$", "$$")) }

// UnitMounts returns the value of RequiresMountsFor for a unit that keeps data in
// directories. The unit does not start before the file systems of the directories are
// mounted. Otherwise it would write its data into the directory below the mount point.
func UnitMounts(dirs ...string) string {
	var words []string
	for _, dir := range dirs {
		words = append(words, unitPath(dir))
	}
	return strings.Join(words, " ")
}

// unitPath quotes one word of a setting in a unit file, where $ has no special meaning.
func unitPath(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`).Replace(s) + `"`
}
