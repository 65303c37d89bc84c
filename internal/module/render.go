package module

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

// Render fills in a module's template, a file below "templates".
func Render(files fs.FS, name string, data any) ([]byte, error) {
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

// UnitWord makes one word of a command line in a unit file, by the rules of
// systemd.syntax(7) and systemd.service(5).
func UnitWord(s string) string { return unitPath(strings.ReplaceAll(s, "$", "$$")) }

// UnitMounts is the value of RequiresMountsFor for a unit that keeps data in some
// directories: it does not start before the file systems that hold them are
// mounted. Otherwise its data ends up in the directory below the mount.
func UnitMounts(dirs ...string) string {
	var words []string
	for _, dir := range dirs {
		words = append(words, unitPath(dir))
	}
	return strings.Join(words, " ")
}

// unitPath makes one word of a setting in a unit file, where $ has no meaning.
func unitPath(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`).Replace(s) + `"`
}
