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
func UnitWord(s string) string {
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\n", `\n`)
	return `"` + r.Replace(s) + `"`
}
