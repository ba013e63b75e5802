package manifest

import (
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// Bounds of what a text of [MaxSize] may describe. Without them ten megabytes become gigabytes: an
// empty container has three bytes in JSON and about a thousand in memory, and the libraries write
// the path of each duplicated field into a message. Each is many times what real manifests have.
const (
	// maxItems is the maximum number of elements of all lists of a manifest, and of its objects.
	maxItems = 200_000
	// maxValues is the maximum number of values of a JSON document.
	maxValues = 1_000_000
	// maxDepth is the maximum number of objects and lists that are nested.
	maxDepth = 100
	// maxDuplicates is the maximum number of duplicated fields of which lines are looked up.
	maxDuplicates = 100
	// smallDocument is the size in bytes up to which YAML is not checked for its shape first.
	smallDocument = 16 << 10
)

func errTooMany() error { return fmt.Errorf("its lists have more than %d elements", maxItems) }

func errTooDeep() error { return fmt.Errorf("more than %d objects and lists are nested", maxDepth) }

func errLongName(name string, size int) error {
	return fmt.Errorf("the name of a field has %d bytes, more than %d: %s", size, maxName, short(name))
}

// checkJSON checks the shape of a document. It returns nil if the document is no JSON.
func checkJSON(text []byte) error {
	err := jsonShape(text)
	if err != nil && !json.Valid(text) {
		return nil
	}
	return err
}

// jsonShape checks the shape of JSON.
func jsonShape(text []byte) error {
	depth, values := 0, 0
	var name []byte // the last string
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return errTooDeep()
			}
			values++
		case '}', ']':
			depth--
		case ',':
			if values++; values > maxValues {
				return fmt.Errorf("it has more than %d values", maxValues)
			}
		case '"':
			begin := i + 1
			for i = begin; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			name = text[begin:min(i, len(text))]
		case ':':
			if len(name) > maxName {
				return errLongName(string(name[:maxName]), len(name))
			}
		}
	}
	return nil
}

// checkYAML checks the shape of a YAML document that is not small. It returns the number of its
// duplicated fields, maxDuplicates+1 if there are more. A document that does not parse has no
// shape.
func checkYAML(text []byte) (duplicates int, err error) {
	var tree yaml.MapSlice
	if len(text) <= smallDocument || yaml.Unmarshal(text, &tree) != nil {
		return 0, nil
	}
	err = yamlShape(tree, 1, &duplicates)
	return duplicates, err
}

func yamlShape(value any, depth int, duplicates *int) error {
	if depth > maxDepth {
		return errTooDeep()
	}
	switch v := value.(type) {
	case yaml.MapSlice:
		seen := make(map[any]struct{}, len(v))
		for _, item := range v {
			switch key := item.Key.(type) {
			case string:
				if len(key) > maxName {
					return errLongName(key, len(key))
				}
			case yaml.MapSlice, []any:
				continue // not valid as a key: the parser returns an error
			}
			if _, twice := seen[item.Key]; twice && *duplicates <= maxDuplicates {
				*duplicates++
			}
			seen[item.Key] = struct{}{}
			if err := yamlShape(item.Value, depth+1, duplicates); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := yamlShape(item, depth+1, duplicates); err != nil {
				return err
			}
		}
	}
	return nil
}
