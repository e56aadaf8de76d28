-- What each action writes into spec, or why it does not fit the fleet's state.

local ends = {Completed = true, RolledBack = true, Failed = true, Held = true, Superseded = true}

local function is_under_way()
  return rollout ~= nil and not ends[rollout.phase]
end

-- Return the recorded weights.step of a version, or nil: the newest record counts.
local function step_of(version)
  if rollout ~= nil and rollout.to == version then
    return rollout.step
  end
  for _, past in ipairs(status.history or {}) do
    if past.to == version then
      return past.step
    end
  end
  return nil
end

-- Return the fields that set an earlier version.
local function back(version)
  local step = at("weights", "step")
  if at("weights", "digest") ~= nil then
    return nil, "spec.weights.digest is of another version; set version and digest together"
  end
  if step == nil then
    return {weightVersion = version}
  end
  local earlier = step_of(version)
  if earlier == nil then
    return nil, "no step of " .. version .. " is recorded; set version and weights.step together"
  end
  if earlier < step and not at("rollout", "allowRewind") then
    return nil, "weights.step would go back; set rollout.allowRewind, or another weights.runId"
  end
  return {weightVersion = version, weights = {step = earlier}}
end

local changes = {}

function changes.pause()
  if at("rollout", "paused") then
    return nil, "spec.rollout.paused is true already"
  end
  return {rollout = {paused = true}}
end

function changes.resume()
  if not at("rollout", "paused") then
    return nil, "spec.rollout.paused is false already"
  end
  return {rollout = {paused = false}}
end

-- Reasons of Stalled that another rollout does not mend.
local not_of_rollouts = {
  ObjectRefused = true, InvalidObject = true, InternalError = true,
  StepRewound = true, StaleTarget = true,
}

-- The id follows from the failed rollout, so that asking twice starts one rollout.
function changes.retry()
  local stalled = condition("Stalled")
  if rollout == nil or stalled == nil or not_of_rollouts[stalled.reason] then
    return nil, "no rollout is stalled"
  end
  local id = "after-rollout-" .. rollout.id
  if at("rollout", "restartId") == id then
    return nil, "rollout " .. rollout.id .. " is being retried already"
  end
  return {rollout = {restartId = id}}
end

function changes.abort()
  if not is_under_way() then
    return nil, "no rollout is under way"
  end
  if (rollout.from or "") == "" then
    return nil, "rollout " .. rollout.id .. " has no version before it"
  end
  if rollout.reason == "Rollback" then
    return nil, "rollout " .. rollout.id .. " goes back already"
  end
  return back(rollout.from)
end

function changes.promote()
  local canary = at("rollout", "canary") or {}
  if rollout == nil or rollout.phase ~= "CanaryHold" or canary.promote ~= "Manual" then
    return nil, "no canaries wait for rollout.canary.promotedVersion"
  end
  if canary.promotedVersion == rollout.to then
    return nil, rollout.to .. " is promoted already"
  end
  return {rollout = {canary = {promotedVersion = rollout.to}}}
end

function changes.rollback()
  if is_under_way() then
    return nil, "a rollout is under way; abort it instead"
  end
  local past = {}
  if rollout ~= nil then
    past[1] = {to = rollout.to, result = rollout.phase}
  end
  for _, one in ipairs(status.history or {}) do
    past[#past + 1] = one
  end
  for _, one in ipairs(past) do
    if one.result == "Completed" and one.to ~= status.target then
      return back(one.to)
    end
  end
  return nil, "no completed rollout of another version is recorded"
end

-- A field whose value is this is removed.
local absent = {}

function changes.follow()
  if at("weights", "follow") ~= "Latest" or (spec.weightVersion or "") == "" then
    return nil, "the fleet is not pinned: it needs weights.follow Latest and a weightVersion"
  end
  local gone = {weightVersion = absent}
  if at("weights", "digest") ~= nil or at("weights", "step") ~= nil then
    gone.weights = {digest = absent, step = absent}
  end
  return gone
end

local function merge(into, fields)
  for name, value in pairs(fields) do
    if value == absent then
      into[name] = nil
    elseif type(value) == "table" then
      into[name] = into[name] or {}
      merge(into[name], value)
    else
      into[name] = value
    end
  end
end

-- Return the object with an action's fields in its spec.
local function changed(action)
  local fields, why = changes[action]()
  if fields == nil then
    error(why, 0)
  end
  merge(obj.spec, fields)
  return obj
end
