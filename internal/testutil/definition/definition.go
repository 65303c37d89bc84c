// Package definition checks objects of tests as an API server does. It links into no program.
package definition

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// A Definition is a CustomResourceDefinition that can check objects.
type Definition struct {
	structural *structuralschema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
}

// LoadDefinition reads a CustomResourceDefinition and requires that an API server accepts it:
// its schema is structural, its rules compile, and their estimated cost is within the limits.
func LoadDefinition(t *testing.T, text []byte) Definition {
	t.Helper()
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	crd := &apiextensions.CustomResourceDefinition{}
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, crd, nil)
	if err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{"v1alpha1"}
	for _, e := range validation.ValidateCustomResourceDefinition(t.Context(), crd) {
		t.Error(e)
	}
	schema := crd.Spec.Validation.OpenAPIV3Schema // of the only version
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	return Definition{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// CheckObject returns the errors of an object, "path: reason", and of its change from an older
// one if that is not nil. The cost of all rules must be within the limit of one request.
func (d Definition) CheckObject(t *testing.T, object, older map[string]any) (out []string) {
	t.Helper()
	d.setDefaults(object)
	var old any
	if older != nil {
		d.setDefaults(older)
		old = older
	}
	errs := schemavalidation.ValidateCustomResource(nil, object, d.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	if slices.ContainsFunc(errs, hidesRules) {
		return formatErrors(errs)
	}
	found, left := d.rules.Validate(t.Context(), nil, d.structural, object, old, celconfig.RuntimeCELCostBudget)
	t.Logf("the rules cost %d of %d units", celconfig.RuntimeCELCostBudget-left, celconfig.RuntimeCELCostBudget)
	if left < 0 {
		t.Errorf("the rules cost more than a request may: %d units", celconfig.RuntimeCELCostBudget-left)
	}
	return formatErrors(append(errs, found...))
}

// hidesRules reports whether an API server does not check rules because of an error.
func hidesRules(e *field.Error) bool {
	return slices.Contains([]field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}, e.Type)
}

func formatErrors(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, strings.TrimPrefix(e.Field, ".")+": "+e.Detail)
	}
	return out
}

// setDefaults sets defaults, and removes fields that are null.
func (d Definition) setDefaults(object map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	defaulting.Default(object, d.structural)
}

// DecodeObject decodes an object from YAML as an API server does: whole numbers are int64.
func DecodeObject(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
