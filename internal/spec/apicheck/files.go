package apicheck

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/internal/spec"
)

// isKey reports whether a text can be a key of a Secret or ConfigMap. Such a key is also a file
// name without a directory.
func isKey(text string) bool { return len(validation.IsConfigMapKey(text)) == 0 }

// checkFileName checks the name of a file. The message has the first cause from the left.
func (k *checker) checkFileName(r rule, at, name string) {
	shown := quoteText(name)
	hint := "store the " + r.content + " under the key " + suggestKey(name) + " of a source in " + pathFilesFrom + ", and write the key here"
	switch {
	case strings.HasPrefix(name, "/"):
		k.refuse(idAbsolutePath, at, shown+" is a path on the server, and an object cannot use files of the server", hint)
	case strings.HasPrefix(name, "~"):
		k.refuse(idAbsolutePath, at, shown+" is in a home directory, and an object cannot use files of the server", hint)
	case strings.Contains(name, "$"):
		k.refuse(idEnvironment, at, shown+" contains a variable, and an object cannot use variables of the server", hint)
	case strings.ContainsAny(name, `/\`) && isOutside(name):
		k.refuse(idDirectory, at, shown+" leaves the files of the object", hint)
	case strings.ContainsAny(name, `/\`):
		k.refuse(idDirectory, at, shown+" has a directory, but the files of an object have none", hint)
	case !isKey(name):
		k.refuse(idFileName, at, shown+" cannot be a key of a Secret or ConfigMap",
			"store the "+r.content+" under a key of letters, digits, '-', '_' and '.', and write the key here")
	case k.complete && !k.hasFile(name):
		k.refuseMissing(r, at, name)
	}
}

func (k *checker) hasFile(name string) bool {
	_, ok := k.files[name]
	return ok
}

// refuseMissing reports a name without a file. It does not suggest other keys, because users
// may be allowed to write clusters, but not to read Secrets.
func (k *checker) refuseMissing(r rule, at, name string) {
	if len(k.cluster.Spec.FilesFrom) == 0 {
		k.refuse(idFileMissing, at, strconv.Quote(name)+" is not a file of the object, because "+pathFilesFrom+" is empty",
			"create a Secret with the "+r.content+" under the key "+name+", and name the Secret in "+pathFilesFrom)
		return
	}
	k.refuse(idFileMissing, at, strconv.Quote(name)+" is not a key of "+k.listSources(),
		"add the "+r.content+" to one of them under the key "+name+", or correct the name")
}

// isOutside reports whether a relative path contains "..".
func isOutside(name string) bool {
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '/' || c == '\\' }) {
		if part == ".." {
			return true
		}
	}
	return false
}

// suggestKey returns a key for the file with a path: its last part, if that can be a key.
func suggestKey(name string) string {
	if base := path.Base(strings.ReplaceAll(name, `\`, "/")); isKey(base) {
		return base
	}
	return "NAME"
}

// quoteText returns a text from the object for a message. Text of several lines is not shown,
// because it can be a key instead of the name of its file.
func quoteText(text string) string {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "this text"
	}
	return fmt.Sprintf("%.100q", text)
}

// checkManifest checks a manifest: a file, or a URL. A directory is not possible, because it
// has no key.
func (k *checker) checkManifest(r rule, path, text string) {
	if spec.IsURL(text) {
		location, _ := spec.SplitPinnedURL(text)
		k.checkURL(path, location)
		return
	}
	k.checkFileName(r, path, text)
}
