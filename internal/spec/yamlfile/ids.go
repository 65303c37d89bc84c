package yamlfile

// The ids of the diagnostics. Each has an entry in docs/guide/errors.md; scripts can
// depend on them, so they never change.
const (
	idSyntax       = "yaml-syntax"
	idTooLarge     = "yaml-too-large"
	idEmptyFile    = "empty-file"
	idUnknownField = "unknown-field"
	idDuplicateKey = "duplicate-key"

	// IDWrongType is the id for a value of another type.
	IDWrongType = "wrong-type"
)
