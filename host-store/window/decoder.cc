// SPDX-License-Identifier: GPL-2.0-only
// Checks descriptors, field by field, in the order of abi/README.md section 5.
#include "host-store/window/decoder.h"

namespace tmem {
namespace {

op::Refused Refuse(tmem_status status) {
  return {status, std::nullopt};
}

PageKey KeyOf(const tmem_desc& desc) {
  return {PoolHandle{desc.pool}, {{desc.object[0], desc.object[1], desc.object[2]}}, desc.index};
}

bool NoObject(const tmem_desc& desc) {
  return (desc.object[0] | desc.object[1] | desc.object[2]) == 0;
}

// What must be zero in every operation that does not say otherwise.
bool Plain(const tmem_desc& desc) {
  return desc.flags == 0 && desc.state == 0 && desc.count == 0 && desc.tag == 0;
}

bool Chosen(const LaneContext& lane, std::uint64_t feature) {
  return (lane.features & feature) != 0;
}

bool IsOwnLane(const tmem_desc& desc, const LaneContext& lane) {
  return tmem_lane_of(desc.pool, desc.object, desc.index, lane.key_lanes) == lane.lane;
}

Operation DecodePut(const tmem_desc& desc, const LaneContext& lane) {
  // First of all: a key of another lane must not be touched from here, not even to remove it.
  if (!IsOwnLane(desc, lane)) return Refuse(TMEM_STATUS_BAD_LANE);
  const PageKey key = KeyOf(desc);
  const bool filled = (desc.flags & TMEM_DESC_FILL) != 0;
  if ((desc.flags & ~TMEM_DESC_FLAGS) != 0 || (filled && !Chosen(lane, TMEM_FEATURE_FILL)) ||
      desc.state != 0 || desc.count != 0) {
    return op::Refused{TMEM_STATUS_BAD_FIELD, key};
  }
  if (filled) return op::PutFilled{key, desc.value, desc.tag};
  if (desc.value >= lane.slots) return op::Refused{TMEM_STATUS_BAD_SLOT, key};
  return op::Put{key, static_cast<std::uint32_t>(desc.value), desc.tag};
}

Operation DecodeGet(const tmem_desc& desc, const LaneContext& lane) {
  if (!IsOwnLane(desc, lane)) return Refuse(TMEM_STATUS_BAD_LANE);
  if (!Plain(desc)) return Refuse(TMEM_STATUS_BAD_FIELD);
  if (desc.value >= lane.slots) return Refuse(TMEM_STATUS_BAD_SLOT);
  return op::Get{KeyOf(desc), static_cast<std::uint32_t>(desc.value)};
}

Operation DecodeFlush(const tmem_desc& desc) {
  if (desc.flags != 0 || desc.state != 0 || desc.tag != 0 || desc.value != 0 || desc.count == 0) {
    return Refuse(TMEM_STATUS_BAD_FIELD);
  }
  const PageKey key = KeyOf(desc);
  return op::Flush{key.pool, key.object, {desc.index, desc.count}};
}

Operation DecodeFlushObject(const tmem_desc& desc) {
  if (!Plain(desc) || desc.value != 0 || desc.index != 0) return Refuse(TMEM_STATUS_BAD_FIELD);
  return op::FlushObject{PoolHandle{desc.pool}, KeyOf(desc).object};
}

Operation DecodeFlushPool(const tmem_desc& desc) {
  if (!Plain(desc) || desc.value != 0 || desc.index != 0 || !NoObject(desc)) {
    return Refuse(TMEM_STATUS_BAD_FIELD);
  }
  return op::FlushPool{PoolHandle{desc.pool}};
}

Operation DecodeNop(const tmem_desc& desc) {
  if (!Plain(desc) || desc.pool != 0 || !NoObject(desc) || desc.index != 0 || desc.value != 0) {
    return Refuse(TMEM_STATUS_BAD_FIELD);
  }
  return op::Nop{};
}

Operation DecodePoolCreate(const tmem_desc& desc, const LaneContext& lane) {
  if (!Plain(desc) || desc.pool != 0) return Refuse(TMEM_STATUS_BAD_FIELD);
  switch (desc.value) {
    case TMEM_POOL_EPHEMERAL:
      if (!Chosen(lane, TMEM_FEATURE_EPHEMERAL)) return Refuse(TMEM_STATUS_UNSUPPORTED);
      return op::PoolCreate{PoolKind::kEphemeral};
    case TMEM_POOL_PERSISTENT:
      if (!Chosen(lane, TMEM_FEATURE_PERSISTENT)) return Refuse(TMEM_STATUS_UNSUPPORTED);
      return op::PoolCreate{PoolKind::kPersistent};
    default: return Refuse(TMEM_STATUS_BAD_FIELD);  // the shared bit too (K2)
  }
}

// The module lets no report of a guest pass as it is: it writes all fields anew.
Operation DecodeReportDone(const tmem_desc& desc) {
  const bool answered = desc.state == TMEM_REPORT_ANSWERED || desc.state == TMEM_REPORT_WITHDRAWN;
  if (!answered || desc.tag > TMEM_STATUS_BAD_RANGE) return Refuse(TMEM_STATUS_BAD_FIELD);
  return op::ReportDone{static_cast<tmem_status>(desc.tag), desc.value};
}

Operation DecodeReport(const tmem_desc& desc, const LaneContext& lane) {
  if (lane.module_reports) return DecodeReportDone(desc);
  if (!Chosen(lane, TMEM_FEATURE_REPORT)) return Refuse(TMEM_STATUS_UNSUPPORTED);
  // Withdrawn may be what the copy says already; which it is, the compare-and-swap decides.
  const bool posted = desc.state == TMEM_REPORT_POSTED || desc.state == TMEM_REPORT_WITHDRAWN;
  if (desc.flags != 0 || desc.tag != 0 || desc.pool != 0 || !posted || desc.count == 0 ||
      desc.count > TMEM_MAX_REPORT_RANGES) {
    return Refuse(TMEM_STATUS_BAD_FIELD);
  }
  if (desc.value >= lane.slots) return Refuse(TMEM_STATUS_BAD_SLOT);
  return op::Report{static_cast<std::uint32_t>(desc.value), desc.count};
}

Operation DecodeShrink(const tmem_desc& desc, const LaneContext& lane) {
  if (!Chosen(lane, TMEM_FEATURE_SHRINK)) return Refuse(TMEM_STATUS_UNSUPPORTED);
  const bool drained = desc.op == TMEM_OP_DRAINED;
  const std::uint32_t most = drained ? TMEM_SHRINK_UNREADABLE : TMEM_SHRINK_NOTHING_LEFT;
  if (desc.flags != 0 || desc.state != 0 || desc.tag != 0 || desc.pool != 0 || desc.count > most) {
    return Refuse(TMEM_STATUS_BAD_FIELD);
  }
  const auto outcome = static_cast<tmem_shrink_outcome>(desc.count);
  if (drained) return op::Drained{desc.value, outcome};
  return op::Shrunk{desc.value, outcome};
}

Operation DecodeKeyLane(const tmem_desc& desc, const LaneContext& lane) {
  switch (desc.op) {
    case TMEM_OP_NOP: return DecodeNop(desc);
    case TMEM_OP_PUT: return DecodePut(desc, lane);
    case TMEM_OP_GET: return DecodeGet(desc, lane);
    case TMEM_OP_FLUSH: return DecodeFlush(desc);
    case TMEM_OP_FLUSH_OBJECT: return DecodeFlushObject(desc);
    case TMEM_OP_FLUSH_POOL: return DecodeFlushPool(desc);
    default: return Refuse(TMEM_STATUS_BAD_OP);
  }
}

Operation DecodeControlLane(const tmem_desc& desc, const LaneContext& lane) {
  switch (desc.op) {
    case TMEM_OP_NOP: return DecodeNop(desc);
    case TMEM_OP_POOL_CREATE:
    case TMEM_OP_POOL_DESTROY:
    case TMEM_OP_CREDIT_RETURN:
    case TMEM_OP_REPORT:
    case TMEM_OP_SHRUNK:
    case TMEM_OP_DRAINED: break;
    default: return Refuse(TMEM_STATUS_BAD_OP);
  }
  if (!NoObject(desc) || desc.index != 0) return Refuse(TMEM_STATUS_BAD_FIELD);
  if (desc.op == TMEM_OP_POOL_CREATE) return DecodePoolCreate(desc, lane);
  if (desc.op == TMEM_OP_REPORT) return DecodeReport(desc, lane);
  if (desc.op == TMEM_OP_SHRUNK || desc.op == TMEM_OP_DRAINED) return DecodeShrink(desc, lane);
  if (!Plain(desc)) return Refuse(TMEM_STATUS_BAD_FIELD);
  if (desc.op == TMEM_OP_CREDIT_RETURN) {
    if (desc.pool != 0) return Refuse(TMEM_STATUS_BAD_FIELD);
    return op::CreditReturn{desc.value};
  }
  if (desc.value != 0) return Refuse(TMEM_STATUS_BAD_FIELD);
  return op::PoolDestroy{PoolHandle{desc.pool}};
}

}  // namespace

Operation Decode(const tmem_desc& desc, const LaneContext& lane) {
  Operation operation =
      lane.lane == lane.key_lanes ? DecodeControlLane(desc, lane) : DecodeKeyLane(desc, lane);
  // `status` is zero in everything that is posted; a put of a known key still drops the old page.
  if (desc.status == 0 || std::holds_alternative<op::Refused>(operation)) return operation;
  op::Refused refused = Refuse(TMEM_STATUS_BAD_FIELD);
  if (const auto* put = std::get_if<op::Put>(&operation)) refused.gone = put->key;
  if (const auto* put = std::get_if<op::PutFilled>(&operation)) refused.gone = put->key;
  return refused;
}

}  // namespace tmem
