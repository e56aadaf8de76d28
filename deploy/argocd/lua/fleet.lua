-- An RLInferenceFleet as the operator last wrote it. Fields may be absent.
local spec, status = obj.spec or {}, obj.status or {}
local generation = obj.metadata.generation or 0
local rollout = status.rollout

-- Return a condition that is true for the present spec, or nil.
local function condition(kind)
  for _, one in ipairs(status.conditions or {}) do
    local about = one.observedGeneration or 0
    if one.type == kind and one.status == "True" and about >= generation then
      return one
    end
  end
  return nil
end

-- Return a value of spec, or nil.
local function at(parent, field)
  return (spec[parent] or {})[field]
end
