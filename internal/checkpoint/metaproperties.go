package checkpoint

import (
	"errors"
	"fmt"
	"strconv"

	"weir/internal/uuid"
	"weir/internal/vfs"
)

// MetaProperties is the file meta.properties of a log directory (Kafka's MetaProperties):
//
//	#
//	node.id=1
//	directory.id=XsHPqpKCh99Eddk85DvZxA
//	version=1
//	cluster.id=4L6g3nShT-eMCtK--X86sw
type MetaProperties struct {
	Version     int       // 1; 0, or none, was written by ZooKeeper brokers, which had broker.id instead of node.id
	ClusterID   string    // "" when not set, which only version 0 may leave out
	NodeID      int32     // -1 when not set, which only version 0 may leave out
	DirectoryID uuid.UUID // zero when not set: directories formatted before 3.7
}

// ReadMetaProperties reads a meta.properties. Keys that it does not know are passed over.
func ReadMetaProperties(fsys vfs.FS, path string) (MetaProperties, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return MetaProperties{}, err
	}
	props, err := parseProperties(string(data))
	if err != nil {
		var at *propertyError
		if errors.As(err, &at) {
			return MetaProperties{}, &Error{path, at.line, at.err}
		}
		return MetaProperties{}, &Error{path, 0, err}
	}
	m := MetaProperties{NodeID: -1}
	version, ok := props["version"] // the first brokers wrote none
	switch {
	case ok && version.value != "0" && version.value != "1":
		return MetaProperties{}, &Error{path, version.line, fmt.Errorf("version %s, only 0 and 1 are known", excerpt(version.value))}
	case version.value == "1":
		m.Version = 1
	}
	if err := m.set(props); err != nil {
		return MetaProperties{}, &Error{path, err.line, err.err}
	}
	return m, nil
}

func (m *MetaProperties) set(props map[string]property) *propertyError {
	m.ClusterID = props["cluster.id"].value
	idKey := "node.id"
	if m.Version == 0 {
		idKey = "broker.id"
	}
	if p, ok := props[idKey]; ok {
		id, err := strconv.ParseInt(p.value, 10, 32)
		if err != nil {
			return &propertyError{p.line, fmt.Errorf("%s %s is not a number of 32 bits", idKey, excerpt(p.value))}
		}
		m.NodeID = int32(id)
	} else if m.Version > 0 {
		return &propertyError{0, fmt.Errorf("the property %s is missing", idKey)}
	}
	if m.Version > 0 && m.ClusterID == "" {
		return &propertyError{0, errors.New("the property cluster.id is missing")}
	}
	if p, ok := props["directory.id"]; ok {
		id, err := uuid.Parse(p.value)
		if err != nil {
			return &propertyError{p.line, fmt.Errorf("directory.id: %w", err)}
		}
		m.DirectoryID = id
	}
	return nil
}

// WriteMetaProperties replaces a meta.properties, leaving out what is not set.
func WriteMetaProperties(fsys vfs.FS, path string, m MetaProperties) error {
	b := []byte("#\n")
	idKey := "node.id"
	if m.Version == 0 {
		idKey = "broker.id"
	}
	if m.NodeID >= 0 {
		b = fmt.Appendf(b, "%s=%d\n", idKey, m.NodeID)
	}
	if !m.DirectoryID.IsZero() {
		b = fmt.Appendf(b, "directory.id=%s\n", m.DirectoryID)
	}
	b = fmt.Appendf(b, "version=%d\n", m.Version)
	if m.ClusterID != "" {
		b = fmt.Appendf(b, "cluster.id=%s\n", escapeProperty(m.ClusterID))
	}
	return vfs.WriteFileAtomic(fsys, path, b)
}
