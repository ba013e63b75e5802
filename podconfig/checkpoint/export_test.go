package checkpoint

// Pack returns a record that is not encrypted.
func Pack(name string, content []byte) ([]byte, error) { return pack(name, content, nil) }
